/* From the table of options to struct options: finding a name, reading a value strictly by its kind, taking
 * the environment first and the command line after it, and guessing what a misspelt name was meant to be. */
#include "cli/options.h"

#include "cli/common.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct command commands[N_COMMANDS] = {
#define COMMAND(id, name, run, aliases, needs_model, plain_argument, summary, example)                       \
    {name, run, aliases, needs_model, plain_argument, summary, example},
#include "cli/commands.def"
#undef COMMAND
};

#define DEFAULT(cmd, field, deflt)
const struct option option_table[] = {
#define SECTION(title) {.kind = OPT_SECTION, .help = title},
#define OPT(field, kind_, names_, off_, value_, least_, most_, deflt_, cmds, env_, help_)                    \
    {.kind = OPT_##kind_,                                                                                    \
     .takes = OPT_##kind_ <= OPT_COUNT ? TAKES_FLAG : TAKES_ARG,                                             \
     .commands = cmds,                                                                                       \
     .names = names_,                                                                                        \
     .off = off_,                                                                                            \
     .value = value_,                                                                                        \
     .least = least_,                                                                                        \
     .most = most_,                                                                                          \
     .deflt = deflt_,                                                                                        \
     .env = env_,                                                                                            \
     .help = help_,                                                                                          \
     .offset = offsetof(struct options, field)},
#define NOP(takes_, names_, off_, value_, cmds)                                                              \
    {.kind = OPT_NOP,                                                                                        \
     .takes = TAKES_##takes_,                                                                                \
     .commands = cmds,                                                                                       \
     .names = names_,                                                                                        \
     .off = off_,                                                                                            \
     .value = value_},
#define REFUSED(takes_, names_, cmds, why)                                                                   \
    {.kind = OPT_REFUSED,                                                                                    \
     .takes = TAKES_##takes_,                                                                                \
     .commands = cmds,                                                                                       \
     .names = names_,                                                                                        \
     .off = "",                                                                                              \
     .value = "",                                                                                            \
     .help = why},
#include "cli/options.def"
#undef SECTION
#undef OPT
#undef NOP
#undef REFUSED
};
#undef DEFAULT
const size_t n_options = sizeof option_table / sizeof *option_table;

static const struct {
    unsigned command;
    size_t offset;
    const char *deflt;
} command_defaults[] = {
#define SECTION(title)
#define OPT(field, kind, names, off, value, least, most, deflt, cmds, env, help)
#define NOP(takes, names, off, value, cmds)
#define REFUSED(takes, names, cmds, why)
#define DEFAULT(cmd, field, deflt) {cmd, offsetof(struct options, field), deflt},
#include "cli/options.def"
};

static unsigned bit_of(const struct command *c)
{
    return 1u << (c - commands);
}

const char *option_default(const struct option *d, const struct command *c)
{
    for (size_t i = 0; i < sizeof command_defaults / sizeof *command_defaults; i++) {
        if ((command_defaults[i].command & bit_of(c)) && command_defaults[i].offset == d->offset)
            return command_defaults[i].deflt;
    }
    return d->deflt;
}

bool option_env(const struct option *d, char grappa[64], char llama[64])
{
    static const char prefix[] = "LLAMA_ARG_";
    if (!d->env || !*d->env)
        return false;
    bool is_llama = strncmp(d->env, prefix, sizeof prefix - 1) == 0;
    snprintf(llama, 64, "%s", is_llama ? d->env : "");
    if (is_llama)
        snprintf(grappa, 64, "GRAPPA_%s", d->env + sizeof prefix - 1);
    else
        snprintf(grappa, 64, "%s", d->env);
    return true;
}

/* ---- names ---- */

bool each_name(const char *names, bool (*fn)(const char *name, size_t len, void *user), void *user)
{
    while (*names) {
        size_t n = strcspn(names, ",");
        if (fn(names, n, user))
            return true;
        names += n + (names[n] == ',');
    }
    return false;
}

static bool name_is(const char *name, size_t len, void *user)
{
    const char *wanted = user;
    return strlen(wanted) == len && memcmp(name, wanted, len) == 0;
}

static bool has_name(const char *names, const char *wanted)
{
    return each_name(names, name_is, (void *)wanted);
}

static const struct option *find_option(const struct command *c, const char *name, bool *off)
{
    for (size_t i = 0; i < n_options; i++) {
        const struct option *d = &option_table[i];
        if (d->kind == OPT_SECTION || !(d->commands & bit_of(c)))
            continue;
        *off = has_name(d->off, name);
        if (*off || has_name(d->names, name))
            return d;
    }
    return NULL;
}

const struct command *command_by_name(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

const struct command *command_by_program(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (has_name(commands[i].aliases, name))
            return &commands[i];
    }
    return strncmp(name, "grappa-", 7) == 0 ? command_by_name(name + 7) : NULL;
}

/* ---- the nearest name to a misspelt one ---- */

struct nearest {
    const char *wanted;
    char best[64];
    size_t distance;
};

/* How many letters were put in, left out, changed, or swapped with their neighbour. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t d[64][64];
    if (na >= 64 || nb >= 64)
        return SIZE_MAX;
    for (size_t i = 0; i <= na; i++) {
        for (size_t j = 0; j <= nb; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = d[i - 2][j - 2] + 1 < best ? d[i - 2][j - 2] + 1 : best;
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

static bool consider(const char *name, size_t len, void *user)
{
    struct nearest *n = user;
    size_t d = edit_distance(n->wanted, strlen(n->wanted), name, len);
    if (d < n->distance) {
        n->distance = d;
        snprintf(n->best, sizeof n->best, "%.*s", (int)len, name);
    }
    return false;
}

/* A guess is worth making when at most a third of the name is wrong. */
static struct nearest nearest_start(const char *wanted)
{
    return (struct nearest){.wanted = wanted, .distance = 1 + (strlen(wanted) + 2) / 3};
}

const char *command_nearest(const char *name)
{
    struct nearest n = nearest_start(name);
    const char *best = NULL;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        size_t before = n.distance;
        consider(commands[i].name, strlen(commands[i].name), &n);
        if (n.distance < before)
            best = commands[i].name;
    }
    return best;
}

static int unknown_option(const struct command *c, const char *name, struct grappa_err *err)
{
    struct nearest n = nearest_start(name);
    for (size_t i = 0; i < n_options; i++) {
        const struct option *d = &option_table[i];
        if (d->kind == OPT_SECTION || !(d->commands & bit_of(c)))
            continue;
        each_name(d->names, consider, &n);
        each_name(d->off, consider, &n);
    }
    if (*n.best)
        return cli_error(err, 2, "%s: unknown option; did you mean %s?", name, n.best);
    return cli_error(err, 2, "%s: unknown option of `%s`; see `grappa help %s`", name, c->name, c->name);
}

/* ---- values ---- */

/* What is being read: for the error line. */
struct reading {
    struct options *o;
    const struct option *d;
    const char *name; /* as it was typed */
    struct grappa_err *err;
};

static int bad_value(const struct reading *r, const char *text, const char *why)
{
    return cli_error(r->err, 2, "%s %s: %s", r->name, *text ? text : "\"\"", why);
}

static int out_of_range(const struct reading *r, const char *text)
{
    return cli_error(r->err, 2, "%s %s: out of range, %.10g … %.10g", r->name, text, r->d->least, r->d->most);
}

/* The whole text as one whole number within the row's bounds. */
static int read_integer(const struct reading *r, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || (unsigned char)*text <= ' ')
        return bad_value(r, text, "not a whole number");
    if (errno == ERANGE || (double)v < r->d->least || (double)v > r->d->most)
        return out_of_range(r, text);
    *out = v;
    return 0;
}

static int read_number(const struct reading *r, const char *text, float *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || (unsigned char)*text <= ' ' || isnan(v))
        return bad_value(r, text, "not a number");
    if (!(v >= r->d->least && v <= r->d->most))
        return out_of_range(r, text);
    *out = (float)v;
    return 0;
}

static void strings_add(struct options *o, struct strings *s, const char *text)
{
    /* Lists are short: a new array for each entry keeps the arena the only owner. */
    const char **v = arena_alloc(&o->mem, (s->n + 1) * sizeof *v);
    if (s->n)
        memcpy(v, s->v, s->n * sizeof *v);
    v[s->n++] = text;
    s->v = v;
}

static int read_csv(const struct reading *r, const char *text, struct strings *out)
{
    for (const char *p = text;;) {
        size_t n = strcspn(p, ",");
        if (n == 0)
            return bad_value(r, text, "an entry is empty");
        strings_add(r->o, out, arena_strndup(&r->o->mem, p, n));
        if (!p[n])
            return 0;
        p += n + 1;
    }
}

/* One entry of a list of numbers: N, FIRST-LAST, FIRST-LAST+STEP or FIRST-LAST*FACTOR. */
struct range {
    int64_t first, last, step;
    bool times;
};

static bool read_range(const char *s, struct range *out)
{
    char *end;
    errno = 0;
    *out = (struct range){.step = 1};
    out->first = out->last = strtoll(s, &end, 10);
    if (end == s)
        return false;
    if (*end == '-') {
        s = end + 1;
        out->last = strtoll(s, &end, 10);
        if (end == s)
            return false;
        if (*end == '+' || *end == '*') {
            out->times = *end == '*';
            s = end + 1;
            out->step = strtoll(s, &end, 10);
            if (end == s)
                return false;
        }
    }
    return *end == '\0' && errno == 0 && out->step > (out->times ? 1 : 0) && out->first <= out->last &&
           !(out->times && out->first == 0 && out->last > 0);
}

static int ints_add(const struct reading *r, const char *text, struct ints *out)
{
    enum { MOST = 1 << 20 };
    struct range range;
    if (!read_range(text, &range))
        return bad_value(r, text, "not a whole number or range (1-8, 1-8+2, 1-8*2)");
    if ((double)range.first < r->d->least || (double)range.last > r->d->most)
        return out_of_range(r, text);
    size_t size = out->n;
    for (int64_t v = range.first; v <= range.last; v = range.times ? v * range.step : v + range.step) {
        if (out->n == MOST)
            return bad_value(r, text, "too many values");
        if (out->n == size) {
            size = 2 * size + 16;
            int32_t *grown = arena_alloc(&r->o->mem, size * sizeof *grown);
            if (out->n)
                memcpy(grown, out->v, out->n * sizeof *grown);
            out->v = grown;
        }
        out->v[out->n++] = (int32_t)v;
    }
    return 0;
}

static int read_ints(const struct reading *r, const char *text, struct ints *out)
{
    struct strings parts = {0};
    if (read_csv(r, text, &parts))
        return -1;
    for (size_t i = 0; i < parts.n; i++) {
        if (ints_add(r, parts.v[i], out))
            return -1;
    }
    return 0;
}

static bool word_is(const char *words, const char *text)
{
    size_t n = strlen(text);
    for (const char *w = words; *w;) {
        size_t len = strcspn(w, "|");
        if (len == n && memcmp(w, text, n) == 0)
            return true;
        w += len + (w[len] == '|');
    }
    return false;
}

static int set_value(const struct reading *r, const char *text)
{
    void *field = (char *)r->o + r->d->offset;
    int64_t v = 0;
    switch (r->d->kind) {
    case OPT_I32:
        if (read_integer(r, text, &v))
            return -1;
        *(int32_t *)field = (int32_t)v;
        return 0;
    case OPT_U32:
    case OPT_SEED: /* -1 becomes 0xFFFFFFFF */
        if (read_integer(r, text, &v))
            return -1;
        *(uint32_t *)field = (uint32_t)v;
        return 0;
    case OPT_F32:
        return read_number(r, text, field);
    case OPT_WORD:
        if (!word_is(r->d->value, text))
            return cli_error(r->err, 2, "%s %s: must be one of %s", r->name, text, r->d->value);
        *(const char **)field = text;
        return 0;
    case OPT_STR:
        *(const char **)field = text;
        return 0;
    case OPT_LIST:
        strings_add(r->o, field, text);
        return 0;
    case OPT_CSV:
        return read_csv(r, text, field);
    case OPT_INTS:
        return read_ints(r, text, field);
    default:
        return 0;
    }
}

static void set_flag(struct options *o, const struct option *d, bool on)
{
    void *field = (char *)o + d->offset;
    if (d->kind == OPT_BOOL)
        *(bool *)field = on;
    else if (d->kind == OPT_TRI)
        *(int *)field = on;
    else if (d->kind == OPT_COUNT)
        *(int *)field += 1;
}

/* ---- the three sources ---- */

/* Lists get their default at the end, since what is given does not add to it. */
static bool is_list(const struct option *d)
{
    return d->kind == OPT_LIST || d->kind == OPT_CSV || d->kind == OPT_INTS;
}

static int set_defaults(struct options *o, bool lists, struct grappa_err *err)
{
    for (size_t i = 0; i < n_options; i++) {
        const struct option *d = &option_table[i];
        if (d->kind == OPT_SECTION || d->kind == OPT_NOP || d->kind == OPT_REFUSED || is_list(d) != lists)
            continue;
        const char *text = option_default(d, o->command);
        struct reading r = {o, d, d->names, err};
        if (d->kind == OPT_TRI)
            *(int *)((char *)o + d->offset) = -1;
        else if (d->kind == OPT_BOOL)
            set_flag(o, d, *text == '1');
        else if (*text && (!lists || ((struct ints *)((char *)o + d->offset))->n == 0) && set_value(&r, text))
            return -1;
    }
    return 0;
}

static int read_switch(const struct reading *r, const char *text)
{
    if (word_is("1|on|true|enabled", text))
        set_flag(r->o, r->d, true);
    else if (word_is("0|off|false|disabled", text))
        set_flag(r->o, r->d, false);
    else
        return bad_value(r, text, "must be on or off");
    return 0;
}

static int set_from_environment(struct options *o, struct grappa_err *err)
{
    for (size_t i = 0; i < n_options; i++) {
        const struct option *d = &option_table[i];
        char grappa[64], llama[64];
        if (d->kind == OPT_SECTION || !(d->commands & bit_of(o->command)) || !option_env(d, grappa, llama))
            continue;
        const char *name = grappa, *text = getenv(grappa);
        if ((!text || !*text) && *llama)
            text = getenv(name = llama);
        if (!text || !*text)
            continue;
        struct reading r = {o, d, name, err};
        if (d->takes == TAKES_FLAG ? read_switch(&r, text) : set_value(&r, text))
            return -1;
        o->from_environment[i] = is_list(d);
    }
    return 0;
}

/* A list of the command line does not add to that of the environment. */
static void drop_from_environment(struct options *o, const struct option *d)
{
    bool *from = &o->from_environment[d - option_table];
    if (*from)
        ((struct strings *)((char *)o + d->offset))->n = 0;
    *from = false;
}

/* One option at argv[*i]; moves *i past its value. */
static int take_option(struct options *o, int argc, char **argv, int *i, struct grappa_err *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s", argv[*i]);
    const char *attached = NULL;
    if (strncmp(name, "--", 2) == 0) { /* --long=value, and --long_name for --long-name */
        const char *equals = strchr(argv[*i], '=');
        name[strcspn(name, "=")] = '\0';
        attached = equals ? equals + 1 : NULL;
        for (char *p = name; *p; p++)
            *p = *p == '_' ? '-' : *p;
    }
    bool off;
    const struct option *d = find_option(o->command, name, &off);
    if (!d)
        return unknown_option(o->command, name, err);
    if (d->kind == OPT_REFUSED)
        return cli_error(err, 2, "%s: %s", name, d->help);
    if (d->kind == OPT_NOP)
        strings_add(o, &o->ignored, arena_strndup(&o->mem, name, strlen(name)));
    if (d->takes == TAKES_FLAG && attached)
        return cli_error(err, 2, "%s: takes no value", name);
    if (d->takes == TAKES_FLAG) {
        set_flag(o, d, !off);
        return 0;
    }
    if (d->takes == TAKES_MAYBE && !attached && (*i + 1 >= argc || !word_is(d->value, argv[*i + 1])))
        return 0;
    if (!attached && *i + 1 >= argc)
        return cli_error(err, 2, "%s: needs a value, %s", name, d->value);
    struct reading r = {o, d, name, err};
    drop_from_environment(o, d);
    return set_value(&r, attached ? attached : argv[++*i]);
}

int options_parse(struct options *o, const struct command *c, const char *called_as, int argc, char **argv,
                  struct grappa_err *err)
{
    *o = (struct options){.command = c, .called_as = called_as};
    o->from_environment = arena_alloc(&o->mem, n_options * sizeof *o->from_environment);
    if (set_defaults(o, false, err) || set_from_environment(o, err))
        return -1;
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            if (take_option(o, argc, argv, &i, err))
                return -1;
        } else if (c->plain_argument && !o->argument) {
            o->argument = argv[i];
        } else {
            return cli_error(err, 2, "%s: unexpected argument of `%s`; see `grappa help %s`", argv[i],
                             c->name, c->name);
        }
    }
    return set_defaults(o, true, err);
}

void options_release(struct options *o)
{
    arena_release(&o->mem);
}
