/* A row of the table of formats, and what a syntax knows about tools. Inside of the room only. */
#ifndef CHAT_FORMAT_ROW_H
#define CHAT_FORMAT_ROW_H

#include "chat/format.h"

enum calls_kind {
    CALLS_NONE,
    CALLS_JSON,      /* an object with name and arguments, or an array of them */
    CALLS_NAME_JSON, /* a name, then a JSON object */
    CALLS_TAGS,      /* a name, then a marked piece of text per argument */
    CALLS_PYTHON,    /* [name(key=value, …), …] */
    CALLS_DICT,      /* call:name{key:value,…} with strings in quotes of their own */
    CALLS_HARMONY,   /* messages with a header: role, recipient, channel */
    CALLS_RECIPIENT  /* >>>name and a JSON object, >>>all and content */
};

enum {                    /* flags of a row */
       F_BARE = 1,        /* JSON: a call may begin without a mark, if it is the first thing in the content */
       F_ENVELOPE = 2,    /* JSON: in {"tool_call": …} or {"tool_calls": […]} */
       F_KEY_IS_NAME = 4, /* JSON: {name: arguments} */
       F_PYTHON_TAG =
           8,        /* <|python_tag|>: a call as JSON, name.call(key=value), or code for the tool "python" */
       F_FENCE = 16, /* arguments are in a ```json block */
       F_ID_IS_NAME = 32, /* "functions.name:0" is the id, and the name is inside */
       F_LINES = 64,      /* tags: a value has lines of its own */
       F_TYPED =
           128, /* tags: whether it is a string ("true", "string") stands between arg_name_end and type_end */
       F_CDATA = 256,              /* tags: a value may be <![CDATA[…]]> */
       F_ID9 = 512,                /* ids are 9 letters and digits */
       F_CALLS_IN_THINKING = 1024, /* a call ends unclosed reasoning */
       F_THINK_ANYWHERE = 2048,    /* reasoning may come again later in the text */
       F_NO_LEAD = 4096,           /* reasoning that stays in the content doesn't get the prompt's mark */
       F_TRIM = 8192,              /* white space between content and a call is no content */
       F_SPACES = 16384,           /* harmony: one space after each mark */
       F_ARRAY = 32768,            /* JSON: always an array */
       F_RECIPIENTS = 131072,      /* harmony: by recipients alone, calls in the body */
       F_WRAPPED = 262144,         /* an answer stands between the first two of `drop` */
       F_THINK_TRIM = 65536 /* white space after reasoning is no content, whatever the template looks like */
};

#define ROW_TEXTS 6

struct chat_format_row {
    const char *name;
    /* A template of this kind contains one of `in` each of which is several texts separated by \x1F (all of
     * them), and none of `out`. */
    const char *in[ROW_TEXTS], *out[3];
    enum calls_kind kind;
    unsigned flags;
    /* Marks without white space around them: of all calls, of a call; `alternative` also begins a call and
     * stands for call_start and name_prefix. */
    const char *section_start, *section_end, *call_start, *call_end, *alternative;
    const char *name_prefix, *name_end;       /* name_end NULL: up to white space or '<' */
    const char *id_start;                     /* name, id_start, id, name_end */
    const char *name_skip;                    /* name, name_end, anything, name_skip */
    const char *name_key, *args_key, *id_key; /* JSON */
    const char *arg_start, *arg_name_end, *type_end, *value_start, *value_end, *func_end;
    const char *quote;                   /* of a dict's strings */
    const char *drop[ROW_TEXTS];         /* marks that are no content */
    const char *think_start, *think_end; /* NULL: by the list of reasoning marks */
    const char *stops[2];
    const char *preserved[ROW_TEXTS]; /* beside the marks above */
};

extern const struct chat_format_row chat_format_rows[];
extern const size_t chat_format_n_rows;
const struct chat_format_row *chat_format_row(const char *name); /* NULL: there is none */

/* Whether text ends with a mark (NULL: no) and white space. */
bool chat_ends_with(struct str text, const char *mark);

/* ---- tools ---- */
enum { /* which types a value may have by its schema */
       TYPE_STRING = 1,
       TYPE_NUMBER = 2,
       TYPE_BOOLEAN = 4,
       TYPE_NULL = 8,
       TYPE_OBJECT = 16,
       TYPE_ARRAY = 32,
       TYPE_ANY = 63
};
struct chat_argument {
    char *name;
    unsigned types;
    bool required;
    char *schema; /* JSON; with the "$defs" of the whole where it refers to them */
};
struct chat_tool {
    char *name;
    char *parameters; /* JSON schema of an object */
    struct chat_argument *args;
    size_t n_args;
};
struct chat_tools {
    struct chat_tool *tools;
    size_t n;
};
int chat_tools_parse(struct chat_tools *t, struct str json, struct err *err);
void chat_tools_release(struct chat_tools *t);
const struct chat_tool *chat_tools_find(const struct chat_tools *t, struct str name);
/* TYPE_ANY for an argument that the tool doesn't have. */
unsigned chat_tool_types(const struct chat_tool *t, struct str argument);

/* A JSON schema in which objects have no properties but those listed, freed with free(); NULL: it is none. */
char *chat_schema_text(struct str schema);

/* ---- syntax ---- */
struct chat_syntax {
    struct chat_format format;
    const struct chat_format_row *row;
    struct chat_tools tools;
    size_t n_offered;     /* the first so many tools may be called */
    bool calls;           /* calls are looked for */
    bool thoughts;        /* reasoning is put apart */
    bool legacy;          /* and stays in the content too */
    bool thinking_open;   /* the output begins inside of reasoning */
    bool thinking_closed; /* or behind it */
    bool continues;       /* and in the middle of its text */
    bool recipient_open;  /* the prompt ends with the mark that a name follows */
    bool eager;
    bool parallel;
    char *lead; /* what of the prompt belongs to the content when thoughts stay there */
    struct chat_grammar grammar;
    struct buf source;
    const char *words[4], *patterns[4];
    const char *stops[4];
    size_t n_stops;
    const char *preserved[40];
    size_t n_preserved;
};

/* The Lark source for required or lazy calls, or for an answer by a schema (`schema`, or NULL); false: this
 * format has none. */
bool chat_lark_calls(struct chat_syntax *s, const struct chat_syntax_params *p);
void chat_lark_schema(struct chat_syntax *s, const struct chat_syntax_params *p);

#endif
