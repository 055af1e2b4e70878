"""Fifty JSON schemas of different kinds, each with bounds that even a model with random weights comes to the end of."""

WORD = {"type": "string", "maxLength": 10}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]}
TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 9},
                {
                    "type": "object",
                    "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree/anyOf/0"}},
                    "required": ["left", "right"],
                    "additionalProperties": False,
                },
            ]
        }
    },
}
BINARY = {
    "anyOf": [
        {"type": "null"},
        {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "l": {"$ref": "#/anyOf/0"}, "r": {"$ref": "#/anyOf/1/properties/s"},
                           "s": {"enum": ["leaf", "none"]}},
            "required": ["v", "l", "r"],
        },
    ]
}


def an_object(required=None, **properties):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


def some(items, least=0, most=4):
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


SCHEMAS = {
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer", "minimum": -5, "maximum": 12},
    "positive": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1000},
    "number": {"type": "number", "minimum": -1.5, "maximum": 2.25},
    "large number": {"type": "integer", "minimum": 99999, "maximum": 123456},
    "multiple": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 95},
    "short text": {"type": "string", "minLength": 2, "maxLength": 12},
    "fixed length": {"type": "string", "minLength": 5, "maxLength": 5},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,4}$"},
    "pattern of words": {"type": "string", "pattern": "^(red|green|blue)( (light|dark)){0,2}$"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "address": {"type": "string", "format": "ipv4"},
    "enum": {"enum": ["small", "medium", "large"]},
    "enum of kinds": {"enum": ["a", 1, None, True, {"b": [2]}]},
    "const": {"const": {"answer": 42, "why": ["because", None]}},
    "escapes": {"enum": ['a "quoted" word', "back\\slash", "line\nbreak", "é日😀"]},
    "either type": {"type": ["integer", "null"]},
    "any of": {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 9}, WORD]},
    "one of": {"oneOf": [an_object(kind={"const": "cat"}, lives={"type": "integer", "minimum": 1, "maximum": 9}),
                         an_object(kind={"const": "dog"}, good={"type": "boolean"})]},
    "all of": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                         {"properties": {"b": WORD}, "required": ["b"]}], "maxProperties": 2},
    "all of numbers": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 7}]},
    "array": some(WORD, 1, 3),
    "array of integers": some({"type": "integer", "minimum": 0, "maximum": 255}, 4, 4),
    "empty array": some(WORD, 0, 0),
    "array of arrays": some(some({"type": "boolean"}, 0, 2), 1, 3),
    "array of kinds": some({"anyOf": [{"type": "null"}, {"type": "boolean"}, {"const": "x"}]}, 2, 5),
    "tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"enum": ["a", "b"]}, {"type": "boolean"}],
              "items": False, "minItems": 3},
    "tuple with a rest": {"type": "array", "prefixItems": [{"const": "start"}], "items": {"type": "boolean"},
                          "minItems": 2, "maxItems": 4},
    "object": an_object(name=WORD, age={"type": "integer", "minimum": 0, "maximum": 130}),
    "optional properties": an_object([], a=WORD, b={"type": "boolean"}, c={"type": "null"}),
    "some required": an_object(["b", "d"], a={"type": "boolean"}, b=WORD, c={"type": "null"}, d={"enum": [1, 2]}),
    "no properties": {"type": "object", "additionalProperties": False},
    "nested": an_object(user=an_object(name=WORD, home=an_object(["city"], city=WORD, zip={"type": "string",
                                                                                          "pattern": "^[0-9]{5}$"}))),
    "deeply nested": an_object(a=an_object(b=an_object(c=an_object(d=an_object(e=an_object(f={"type": "boolean"})))))),
    "list of objects": an_object(items=some(an_object(["id"], id={"type": "integer", "minimum": 1, "maximum": 99},
                                                      done={"type": "boolean"}), 1, 3)),
    "additional of a kind": {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 9}},
                             "required": ["id"], "additionalProperties": {"type": "boolean"}, "maxProperties": 1},
    "odd names": an_object(**{"": {"type": "boolean"}, "a b": {"type": "null"}, 'q"q': {"enum": [1]}, "é": {"const": 0}}),
    "many properties": an_object(**{f"flag_{i}": {"type": "boolean"} for i in range(24)}),
    "many optional": an_object([], **{f"o{i}": {"type": "null"} for i in range(12)}),
    "reference": {**an_object(a={"$ref": "#/$defs/point"}, b={"$ref": "#/$defs/point"}), "$defs": {"point": POINT}},
    "definitions": {"definitions": {"color": {"enum": ["red", "blue"]}, "pair": some({"$ref": "#/definitions/color"}, 2, 2)},
                    "$ref": "#/definitions/pair"},
    "reference to a property": {"type": "object", "properties": {"a": {"enum": [1, 2, 3]},
                                                                 "b": {"$ref": "#/properties/a"}}, "required": ["a", "b"]},
    "tree": TREE,
    "reference into anyOf": BINARY,
    "linked list": {"$ref": "#/$defs/node", "$defs": {"node": an_object(
        ["value"], value={"type": "boolean"}, next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]})}},
    "nullable object": an_object(point={"anyOf": [POINT, {"type": "null"}]}, tag={"type": ["string", "null"], "maxLength": 5}),
    "tool call": an_object(name={"const": "get_weather"}, arguments=an_object(
        ["city"], city={"type": "string", "minLength": 1, "maxLength": 20}, unit={"enum": ["celsius", "fahrenheit"]},
        days={"type": "integer", "minimum": 1, "maximum": 14})),
    "titles": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A thing", "description": "of words",
               "type": "object", "properties": {"a": {"title": "A", "description": "first", "default": 1, "type": "integer",
                                                      "examples": [1, 2]}}, "required": ["a"]},
}
