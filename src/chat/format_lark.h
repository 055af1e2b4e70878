/* Writing constraints: what format_lark.c and format_lark_args.c share. */
#ifndef CHAT_FORMAT_LARK_H
#define CHAT_FORMAT_LARK_H

#include "chat/format_row.h"
#include "chat/parser_value.h"

struct lark {
    struct chat_syntax *s;
    const struct chat_syntax_params *p;
    struct buf *out;
    bool think; /* there is a rule for reasoning */
    bool dicts; /* rules for values of dicts are needed */
};

void lark_literal(struct lark *l, const char *text);
/* A mark: control tokens in it as tokens. */
void lark_mark(struct lark *l, const char *text);
/* A rule for text, any that the regular expression `chars` allows, up to and with a mark. */
void lark_until(struct lark *l, const char *name, const char *chars, const char *mark);
void lark_regex(struct buf *out, const char *text); /* escaped */
/* A value by its schema. Ends the line. */
void lark_json(struct lark *l, const char *schema);

/* A call's name and arguments in the way of each kind; rules arg_N_M (tool, argument) come with the second.
 */
void lark_tags_call(struct lark *l, size_t tool);
void lark_python_call(struct lark *l, size_t tool);
void lark_dict_call(struct lark *l, size_t tool);
void lark_argument_rules(struct lark *l, size_t tool);
void lark_shared_values(struct lark *l); /* the rules that they share */

#endif
