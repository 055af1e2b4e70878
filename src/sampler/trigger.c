/* Triggers: plain words by search, patterns by PCRE2, set so that they mean what they mean to ECMAScript, in
 * which llama.cpp's are written. Matching is bounded: a pattern that runs into the limit doesn't match. */
#include "sampler/trigger.h"

#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#define TEXT_CEILING  ((size_t)64 << 20)
#define PATTERN_BYTES ((size_t)64 << 10)
#define MATCH_LIMIT   2000000u
#define HEAP_LIMIT_KB (64u << 10)

struct pattern {
    pcre2_code *code;
    bool whole; /* "^…$": first against all of the text */
};

struct trigger {
    struct arena arena;
    struct str *words;
    size_t n_words, longest;
    struct pattern *patterns;
    size_t n_patterns;
    pcre2_match_context *limits;
    pcre2_match_data *data;
    token_id *ids;
    size_t n_ids;
    struct buf text;
    struct trigger_token *tokens;
    size_t n_tokens, size_tokens;
};

static int compile(struct pattern *out, const char *source, struct err *err)
{
    int code;
    PCRE2_SIZE at;
    size_t n = strlen(source);
    if (n > PATTERN_BYTES)
        return err_set(err, ERR_USAGE, "trigger pattern: longer than %zu bytes", PATTERN_BYTES);
    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    pcre2_set_newline(c, PCRE2_NEWLINE_ANYCRLF); /* "." is anything but \n and \r */
    out->code =
        pcre2_compile((PCRE2_SPTR)source, n, PCRE2_DOLLAR_ENDONLY | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_NEVER_UTF,
                      &code, &at, c);
    pcre2_compile_context_free(c);
    if (!out->code) {
        char why[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(err, ERR_USAGE, "trigger pattern: %s at byte %zu", why, (size_t)at);
    }
    out->whole = n > 0 && source[0] == '^' && source[n - 1] == '$';
    pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE);
    return 0;
}

static void copy_words(struct trigger *t, const struct grammar_params *p)
{
    t->words = arena_alloc(&t->arena, (p->n_trigger_words + 1) * sizeof *t->words);
    for (size_t i = 0; i < p->n_trigger_words; i++) {
        struct str w = str_of(p->trigger_words[i]);
        t->words[t->n_words++] = (struct str){arena_strndup(&t->arena, w.p, w.n), w.n};
        t->longest = w.n > t->longest ? w.n : t->longest;
    }
    t->ids = arena_alloc(&t->arena, (p->n_trigger_tokens + 1) * sizeof *t->ids);
    for (size_t i = 0; i < p->n_trigger_tokens; i++)
        t->ids[t->n_ids++] = p->trigger_tokens[i];
}

struct trigger *trigger_new(const struct grammar_params *p, struct err *err)
{
    struct trigger *t = xcalloc(1, sizeof *t);
    t->text.ceiling = TEXT_CEILING;
    copy_words(t, p);
    t->patterns = arena_alloc(&t->arena, (p->n_trigger_patterns + 1) * sizeof *t->patterns);
    for (size_t i = 0; i < p->n_trigger_patterns; i++) {
        if (compile(&t->patterns[i], p->trigger_patterns[i], err) != 0) {
            trigger_free(t);
            return NULL;
        }
        t->n_patterns++;
    }
    t->limits = pcre2_match_context_create(NULL);
    pcre2_set_match_limit(t->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(t->limits, HEAP_LIMIT_KB);
    t->data = pcre2_match_data_create(128, NULL);
    return t;
}

void trigger_free(struct trigger *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_patterns; i++)
        pcre2_code_free(t->patterns[i].code);
    pcre2_match_context_free(t->limits);
    pcre2_match_data_free(t->data);
    arena_release(&t->arena);
    buf_release(&t->text);
    free(t->tokens);
    free(t);
}

void trigger_reset(struct trigger *t)
{
    buf_clear(&t->text);
    t->text.failed = false;
    t->n_tokens = 0;
}

/* A word can only have become whole by the last `added` bytes. */
static bool find_word(const struct trigger *t, size_t added, size_t *start)
{
    size_t back = t->longest + added, from = t->text.n > back ? t->text.n - back : 0;
    const char *first = NULL;
    for (size_t i = 0; i < t->n_words; i++) {
        if (t->words[i].n == 0)
            continue;
        const char *at = memmem(t->text.p + from, t->text.n - from, t->words[i].p, t->words[i].n);
        if (at && (!first || at < first))
            first = at;
    }
    if (first)
        *start = (size_t)(first - t->text.p);
    return first != NULL;
}

static bool match(const struct trigger *t, const pcre2_code *code, uint32_t options, size_t *start)
{
    int n = pcre2_match(code, (PCRE2_SPTR)t->text.p, t->text.n, 0, options, t->data, t->limits);
    if (n < 0)
        return false;
    const PCRE2_SIZE *groups = pcre2_get_ovector_pointer(t->data);
    *start = groups[0];
    for (int i = 1; i < n; i++) {
        if (groups[2 * i] != PCRE2_UNSET) {
            *start = groups[2 * i];
            break;
        }
    }
    return true;
}

static bool find_pattern(const struct trigger *t, size_t *start)
{
    for (size_t i = 0; i < t->n_patterns; i++) {
        const struct pattern *p = &t->patterns[i];
        if ((p->whole && match(t, p->code, PCRE2_ANCHORED | PCRE2_ENDANCHORED, start)) ||
            match(t, p->code, 0, start))
            return true;
    }
    return false;
}

static void add_token(struct trigger *t, token_id id)
{
    if (t->n_tokens == t->size_tokens) {
        t->size_tokens = t->size_tokens ? 2 * t->size_tokens : 256;
        t->tokens = xrealloc(t->tokens, t->size_tokens * sizeof *t->tokens);
    }
    t->tokens[t->n_tokens++] = (struct trigger_token){id, t->text.n};
}

bool trigger_add(struct trigger *t, token_id id, struct str piece, size_t *start)
{
    size_t before = t->text.n;
    buf_add(&t->text, piece.p, piece.n);
    if (t->text.failed)
        return false;
    add_token(t, id);
    for (size_t i = 0; i < t->n_ids; i++) {
        if (t->ids[i] == id) {
            *start = before;
            return true;
        }
    }
    return t->text.n > 0 && (find_word(t, piece.n, start) || find_pattern(t, start));
}

struct str trigger_text(const struct trigger *t)
{
    return buf_str(&t->text);
}

const struct trigger_token *trigger_tokens(const struct trigger *t, size_t *n)
{
    *n = t->n_tokens;
    return t->tokens;
}
