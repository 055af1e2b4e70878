/* The C face of the Rust library: Jinja templates, rendered by minijinja in the manner of Python's Jinja2.
 *
 * No function panics, prints, or keeps a pointer after it has returned. A template may be rendered by several
 * threads at once. Error texts are one line of UTF-8, cut at a character boundary to fit `error_size` bytes
 * with the terminating NUL. */
#ifndef GRAPPA_RUST_H
#define GRAPPA_RUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grappa_jinja;

struct grappa_jinja_text { /* bytes, not terminated; p may be NULL when n is 0 */
    const char *p;
    size_t n;
};

enum grappa_jinja_kind {
    GRAPPA_JINJA_TEXT,   /* the variable `name` is this text */
    GRAPPA_JINJA_JSON,   /* the variable `name` is the value of this JSON document */
    GRAPPA_JINJA_FIELDS, /* each field of this JSON object is a variable; `name` only names it in errors */
};

/* Variables are set in their order, a later one replaces an earlier one. */
struct grappa_jinja_var {
    const char *name;
    enum grappa_jinja_kind kind;
    struct grappa_jinja_text text;
};

enum grappa_jinja_status {
    GRAPPA_JINJA_OK,
    GRAPPA_JINJA_BAD_INPUT, /* a variable is no JSON; the text names it */
    GRAPPA_JINJA_RAISED,    /* raise_exception: the text is the template's */
    GRAPPA_JINJA_FAILED,    /* any other failure of the template; the text names the line */
    GRAPPA_JINJA_LIMIT,     /* too much work */
    GRAPPA_JINJA_WRITE,     /* `write` returned false */
    GRAPPA_JINJA_INTERNAL,  /* a bug in the library, caught */
};

/* NULL on a syntax error; the text names the line. Freed with grappa_jinja_free. */
struct grappa_jinja *grappa_jinja_new(struct grappa_jinja_text source, char *error, size_t error_size);
void grappa_jinja_free(struct grappa_jinja *t);

/* Hands the output to `write` in pieces, also pieces of a render that fails later. `fuel` bounds the work:
 * about one unit for each instruction, and one for each 64 bytes that are made. `now`:
 * seconds since 1970 for strftime_now, 0: the clock. */
enum grappa_jinja_status grappa_jinja_render(const struct grappa_jinja *t,
                                             const struct grappa_jinja_var *vars, size_t n_vars,
                                             uint64_t fuel, int64_t now,
                                             bool (*write)(void *ctx, const char *p, size_t n), void *ctx,
                                             char *error, size_t error_size);

/* What a template can do, as llama.cpp finds it out: by rendering small conversations. */
struct grappa_jinja_caps {
    bool tools, tool_calls, system_role, parallel_tool_calls;
    bool preserve_reasoning;            /* shows reasoning of earlier turns if asked to */
    bool reasoning_effort;              /* looks at that variable */
    bool string_content, typed_content; /* content as a text, as a list of parts */
    bool object_arguments;              /* wants the arguments of a call as an object, not as JSON text */
};
/* False: it couldn't be found out. */
bool grappa_jinja_caps(const struct grappa_jinja *t, struct grappa_jinja_caps *out);

#endif
