/* Replays tests/golden/sampler/expected.txt, which libllama made (tests/tools/llama_sampler.c): over the same
 * logits the same token must be chosen, as many candidates be left, and the likeliest be the same. */
#include "sampler/sampler.h"

#include "test_sampler_vocab.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#define MAX_LIST 512
#define EXPECTED SOURCE_DIR "/tests/golden/sampler/expected.txt"

enum type { INT, FLOAT, UINT };
#define P(key, type, field)                                                                                  \
    {                                                                                                        \
        key, type, offsetof(struct sampler_params, field)                                                    \
    }
static const struct {
    const char *key;
    enum type type;
    size_t at;
} keys[] = {
    P("seed", UINT, seed),
    P("temp", FLOAT, temp),
    P("dynatemp_range", FLOAT, dynatemp_range),
    P("dynatemp_exponent", FLOAT, dynatemp_exponent),
    P("top_k", INT, top_k),
    P("top_p", FLOAT, top_p),
    P("min_p", FLOAT, min_p),
    P("typ_p", FLOAT, typical_p),
    P("top_n_sigma", FLOAT, top_n_sigma),
    P("xtc_probability", FLOAT, xtc_probability),
    P("xtc_threshold", FLOAT, xtc_threshold),
    P("min_keep", INT, min_keep),
    P("repeat_last_n", INT, repeat_last_n),
    P("repeat_penalty", FLOAT, repeat_penalty),
    P("frequency_penalty", FLOAT, frequency_penalty),
    P("presence_penalty", FLOAT, presence_penalty),
    P("dry_multiplier", FLOAT, dry_multiplier),
    P("dry_base", FLOAT, dry_base),
    P("dry_allowed_length", INT, dry_allowed_length),
    P("dry_penalty_last_n", INT, dry_penalty_last_n),
    P("mirostat", INT, mirostat),
    P("tau", FLOAT, mirostat_tau),
    P("eta", FLOAT, mirostat_eta),
    P("adaptive_target", FLOAT, adaptive_target),
    P("adaptive_decay", FLOAT, adaptive_decay),
};

/* One line of keys. Strings point into the line. */
struct golden_case {
    struct sampler_params params;
    int32_t n_vocab;
    uint64_t logits;
    double spread;
    token_id prompt[MAX_LIST];
    size_t n_prompt;
    struct sampler_bias bias[MAX_LIST];
    const char *breakers[16];
};

static size_t parse_list(const char *text, double *out)
{
    size_t n = 0;
    for (char *end; *text && n < MAX_LIST; text = *end ? end + 1 : end)
        out[n++] = strtod(text, &end);
    return n;
}

static void parse_breakers(struct golden_case *c, char *text)
{
    int n = 0;
    for (char *b = strtok(text, "|"); b; b = strtok(NULL, "|")) {
        for (char *p = b; *p; p++)
            *p = *p == '_' ? ' ' : *p;
        c->breakers[n++] = b;
    }
    c->params.dry_breakers = c->breakers;
    c->params.n_dry_breakers = n;
}

static void parse_key(struct golden_case *c, const char *key, char *value)
{
    double list[MAX_LIST];
    double number = strtod(value, NULL);
    if (strcmp(key, "n_vocab") == 0)
        c->n_vocab = (int32_t)number;
    else if (strcmp(key, "logits") == 0)
        c->logits = (uint64_t)number;
    else if (strcmp(key, "spread") == 0)
        c->spread = number;
    else if (strcmp(key, "samplers") == 0)
        c->params.samplers = value;
    else if (strcmp(key, "breakers") == 0)
        c->breakers[0] = value; /* split when the line's own words are through */
    else if (strcmp(key, "prompt") == 0) {
        c->n_prompt = parse_list(value, list);
        for (size_t i = 0; i < c->n_prompt; i++)
            c->prompt[i] = (token_id)list[i];
    } else if (strcmp(key, "bias") == 0) {
        c->params.n_bias = parse_list(value, list) / 2;
        for (size_t i = 0; i < c->params.n_bias; i++)
            c->bias[i] = (struct sampler_bias){(token_id)list[2 * i], (float)list[2 * i + 1]};
        c->params.bias = c->bias;
    } else if (strcmp(key, "steps") != 0) {
        size_t i = 0;
        while (i < sizeof keys / sizeof keys[0] && strcmp(keys[i].key, key) != 0)
            i++;
        assert_true(i < sizeof keys / sizeof keys[0]);
        void *field = (char *)&c->params + keys[i].at;
        if (keys[i].type == FLOAT)
            *(float *)field = (float)number;
        else if (keys[i].type == INT)
            *(int32_t *)field = (int32_t)number;
        else
            *(uint32_t *)field = (uint32_t)number;
    }
}

static void parse_case(struct golden_case *c, char *line)
{
    *c = (struct golden_case){sampler_defaults(), .n_vocab = 1000, .logits = 1, .spread = 4};
    c->params.seed = 1;
    c->params.n_ctx = 4096;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = 0;
        parse_key(c, word, value);
    }
    if (c->breakers[0])
        parse_breakers(c, (char *)c->breakers[0]);
}

/* The same numbers as in tests/tools/llama_sampler.c. */
static void fill(float *x, size_t n, uint64_t seed, double spread)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint64_t j = 0; j < 4; j++) {
            uint64_t z = (seed * 1000003 + i * 4 + j + 1) * 0x9E3779B97F4A7C15u;
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
            z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
            sum += (double)((z ^ (z >> 31)) >> 40) / 16777216.0;
        }
        x[i] = (float)((sum - 2) * spread);
    }
}

static size_t parse_hex(const char *hex, struct buf *out)
{
    size_t n = strcspn(hex, " \n");
    for (size_t i = 0; i + 1 < n; i += 2) {
        char byte[3] = {hex[i], hex[i + 1], 0};
        buf_putc(out, (char)strtol(byte, NULL, 16));
    }
    return n;
}

/* "@ id hex", "+ id hex" and "~ hex id id …" */
static void parse_vocab_line(struct vocab *v, const char *line)
{
    char *rest;
    if (line[0] == '@' || line[0] == '+') {
        long id = strtol(line + 2, &rest, 10);
        parse_hex(rest + 1, line[0] == '@' ? &v->text[id] : &v->piece[id]);
        v->has_piece[id] = line[0] == '+';
        return;
    }
    assert_true(v->n_tails < VOCAB_TAILS);
    const char *ids = line + 2 + parse_hex(line + 2, &v->tails[v->n_tails].text);
    while (*ids == ' ') {
        v->tails[v->n_tails].ids[v->tails[v->n_tails].n++] = (token_id)strtol(ids + 1, &rest, 10);
        ids = rest;
    }
    v->n_tails++;
}

/* Greedy chains end with one candidate here, but with others of p = 0 in llama.cpp, which count as gone
 * there. */
static void check_step(const struct sampler *s, token_id chosen, const char *line)
{
    char *rest;
    assert_int_equal(chosen, strtol(line + 2, &rest, 10));
    size_t left = strtoul(rest, &rest, 10);
    const struct sampler_candidate *list;
    size_t n = sampler_candidates(s, &list), with_p = 0;
    for (size_t i = 0; i < n; i++)
        with_p += list[i].p > 0;
    assert_int_equal(with_p, left);
    for (size_t i = 0; *rest == ' '; i++) {
        long id = strtol(rest + 1, &rest, 10);
        double p = strtod(rest + 1, &rest);
        assert_int_equal(list[i].id, id);
        assert_true(fabs(list[i].p - p) < 1e-5);
    }
}

struct run {
    struct vocab vocab;
    struct golden_case c;
    struct sampler *sampler;
    float *logits;
    char line[4096];
};

static void begin_case(struct run *r)
{
    struct err err = ERR_INIT;
    r->vocab.n = r->c.n_vocab;
    r->vocab.eog = 2; /* of stories260K */
    r->logits = calloc((size_t)r->c.n_vocab + 1, sizeof *r->logits);
    r->sampler = sampler_new(&r->c.params, &r->vocab, &err);
    if (!r->sampler)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < r->c.n_prompt; i++)
        sampler_accept(r->sampler, r->c.prompt[i]);
}

static void end_case(struct run *r)
{
    sampler_free(r->sampler);
    free(r->logits);
    r->sampler = NULL;
}

static void golden(void **state)
{
    (void)state;
    FILE *f = fopen(EXPECTED, "r");
    assert_non_null(f);
    struct run *r = calloc(1, sizeof *r);
    char case_line[4096];
    int n_steps = 0;
    for (char text[4096]; fgets(text, sizeof text, f);) {
        if (text[0] == '#')
            continue;
        if (strchr("@+~", text[0])) {
            parse_vocab_line(&r->vocab, text);
        } else if (text[0] != '=') {
            end_case(r);
            memcpy(r->line, text, sizeof text);
            memcpy(case_line, text, sizeof text);
            parse_case(&r->c, r->line);
        } else {
            if (!r->sampler) /* after the lines that tell its tails */
                begin_case(r);
            fill(r->logits, (size_t)r->c.n_vocab, r->c.logits++, r->c.spread);
            token_id chosen = sampler_sample(r->sampler, r->logits);
            if (strtol(text + 2, NULL, 10) != chosen)
                print_message("%s", case_line);
            check_step(r->sampler, chosen, text);
            sampler_accept(r->sampler, chosen);
            n_steps++;
        }
    }
    end_case(r);
    vocab_stub_release(&r->vocab);
    free(r);
    fclose(f);
    assert_true(n_steps > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
