/* Expected values for the sampler tests: runs llama.cpp's chains over generated logits.
 *
 *     cc -Illama.cpp/include -Illama.cpp/ggml/include llama_sampler.c -lllama -o llama_sampler
 *     ./llama_sampler stories260K.gguf < tests/golden/sampler/cases.txt > tests/golden/sampler/expected.txt
 *
 * Input: lines of key=value words, one line a case (see `keys`); "#" begins a comment. Output: each case's
 * line, and behind it a line for each step, "= token left id:p id:p …" with the likeliest candidates; behind
 * cases that need the vocabulary, which is the model's, lines that tell what was used of it. The order of the
 * stages is that of common_sampler_init in b11434: bias, the named stages, and dist; or temperature and
 * mirostat.
 *
 * Not a part of the build: it needs llama.cpp's headers and libllama. */
#include "llama.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN    6
#define MAX_LIST 512

struct params {
    double seed, n_vocab, logits, spread, steps;
    double temp, dynatemp_range, dynatemp_exponent, top_k, top_p, min_p, typ_p, top_n_sigma;
    double xtc_probability, xtc_threshold, min_keep;
    double repeat_last_n, repeat_penalty, frequency_penalty, presence_penalty;
    double dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n;
    double mirostat, tau, eta, adaptive_target, adaptive_decay;
    char samplers[256];
    char breakers[256]; /* separated by '|', with \n */
    double prompt[MAX_LIST], bias[MAX_LIST];
    int n_prompt, n_bias; /* bias: token, value, token, value, … */
};

static const struct params defaults = {
    .seed = 1,
    .n_vocab = 1000,
    .logits = 1,
    .spread = 4,
    .steps = 4,
    .temp = 0.8f,
    .dynatemp_exponent = 1,
    .top_k = 40,
    .top_p = 0.95f,
    .min_p = 0.05f,
    .typ_p = 1,
    .top_n_sigma = -1,
    .xtc_threshold = 0.1f,
    .repeat_last_n = 64,
    .repeat_penalty = 1,
    .dry_base = 1.75f,
    .dry_allowed_length = 2,
    .dry_penalty_last_n = 64,
    .tau = 5,
    .eta = 0.1f,
    .adaptive_target = -1,
    .adaptive_decay = 0.9f,
    .samplers = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
    .breakers = "\\n|:|\"|*",
};

#define K(name)                                                                                              \
    {                                                                                                        \
#name, offsetof(struct params, name)                                                                 \
    }
static const struct {
    const char *name;
    size_t at;
} keys[] = {K(seed),
            K(n_vocab),
            K(logits),
            K(spread),
            K(steps),
            K(temp),
            K(dynatemp_range),
            K(dynatemp_exponent),
            K(top_k),
            K(top_p),
            K(min_p),
            K(typ_p),
            K(top_n_sigma),
            K(xtc_probability),
            K(xtc_threshold),
            K(min_keep),
            K(repeat_last_n),
            K(repeat_penalty),
            K(frequency_penalty),
            K(presence_penalty),
            K(dry_multiplier),
            K(dry_base),
            K(dry_allowed_length),
            K(dry_penalty_last_n),
            K(mirostat),
            K(tau),
            K(eta),
            K(adaptive_target),
            K(adaptive_decay)};

static int parse_list(const char *text, double *out)
{
    int n = 0;
    for (char *end; *text && n < MAX_LIST; text = *end ? end + 1 : end)
        out[n++] = strtod(text, &end);
    return n;
}

static void parse(char *line, struct params *p)
{
    *p = defaults;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        char *value = strchr(word, '=');
        if (!value)
            continue;
        *value++ = 0;
        if (!strcmp(word, "samplers"))
            snprintf(p->samplers, sizeof p->samplers, "%s", value);
        else if (!strcmp(word, "breakers"))
            snprintf(p->breakers, sizeof p->breakers, "%s", value);
        else if (!strcmp(word, "prompt"))
            p->n_prompt = parse_list(value, p->prompt);
        else if (!strcmp(word, "bias"))
            p->n_bias = parse_list(value, p->bias) / 2;
        else {
            size_t i = 0;
            while (i < sizeof keys / sizeof keys[0] && strcmp(word, keys[i].name))
                i++;
            if (i == sizeof keys / sizeof keys[0]) {
                fprintf(stderr, "unknown key %s\n", word);
                exit(1);
            }
            *(double *)((char *)p + keys[i].at) = strtod(value, NULL);
        }
    }
}

/* Bell-shaped numbers: sums of four 24-bit parts of splitmix64. test_sampler.c has the same. */
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

static int split_breakers(char *text, const char **out)
{
    int n = 0;
    for (char *b = strtok(text, "|"); b; b = strtok(NULL, "|")) {
        char *to = b;
        for (char *from = b; *from; from++)
            *to++ = from[0] == '\\' && from[1] == 'n' ? (from++, '\n') : from[0] == '_' ? ' ' : from[0];
        *to = 0;
        out[n++] = b;
    }
    return n;
}

static struct llama_sampler *stage(const struct params *p, const char *name, const struct llama_vocab *vocab)
{
    size_t keep = (size_t)p->min_keep;
    if (!strcmp(name, "penalties"))
        return llama_sampler_init_penalties((int)p->n_vocab, (int)p->repeat_last_n, (float)p->repeat_penalty,
                                            (float)p->frequency_penalty, (float)p->presence_penalty);
    if (!strcmp(name, "dry")) {
        static char text[256];
        const char *breakers[64];
        strcpy(text, p->breakers);
        int n = split_breakers(text, breakers);
        return llama_sampler_init_dry(vocab, (float)p->dry_multiplier, (float)p->dry_base,
                                      (int)p->dry_allowed_length, (int)p->dry_penalty_last_n, breakers,
                                      (size_t)n);
    }
    if (!strcmp(name, "top_n_sigma"))
        return llama_sampler_init_top_n_sigma((float)p->top_n_sigma);
    if (!strcmp(name, "top_k"))
        return llama_sampler_init_top_k((int)p->top_k);
    if (!strcmp(name, "typ_p"))
        return llama_sampler_init_typical((float)p->typ_p, keep);
    if (!strcmp(name, "top_p"))
        return llama_sampler_init_top_p((float)p->top_p, keep);
    if (!strcmp(name, "min_p"))
        return llama_sampler_init_min_p((float)p->min_p, keep);
    if (!strcmp(name, "xtc"))
        return llama_sampler_init_xtc((float)p->xtc_probability, (float)p->xtc_threshold, keep,
                                      (uint32_t)p->seed);
    if (!strcmp(name, "temperature"))
        return llama_sampler_init_temp_ext((float)p->temp, (float)p->dynatemp_range,
                                           (float)p->dynatemp_exponent);
    if (!strcmp(name, "infill"))
        return llama_sampler_init_infill(vocab);
    fprintf(stderr, "unknown stage %s\n", name);
    exit(1);
}

static struct llama_sampler *chain_of(const struct params *p, const struct llama_vocab *vocab)
{
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    uint32_t seed = (uint32_t)p->seed;
    if (p->n_bias > 0) {
        llama_logit_bias bias[MAX_LIST];
        for (int i = 0; i < p->n_bias; i++)
            bias[i] = (llama_logit_bias){(llama_token)p->bias[2 * i], (float)p->bias[2 * i + 1]};
        llama_sampler_chain_add(chain, llama_sampler_init_logit_bias((int)p->n_vocab, p->n_bias, bias));
    }
    if (p->mirostat > 0) {
        llama_sampler_chain_add(chain, llama_sampler_init_temp((float)p->temp));
        llama_sampler_chain_add(
            chain, p->mirostat == 1
                       ? llama_sampler_init_mirostat((int)p->n_vocab, seed, (float)p->tau, (float)p->eta, 100)
                       : llama_sampler_init_mirostat_v2(seed, (float)p->tau, (float)p->eta));
        return chain;
    }
    char names[256];
    bool adaptive = false; /* chooses in the end, wherever it stands */
    strcpy(names, p->samplers);
    for (char *rest = names, *name; (name = strsep(&rest, ";"));) {
        if (!strcmp(name, "adaptive_p"))
            adaptive = true;
        else if (*name)
            llama_sampler_chain_add(chain, stage(p, name, vocab));
    }
    llama_sampler_chain_add(chain, adaptive ? llama_sampler_init_adaptive_p((float)p->adaptive_target,
                                                                            (float)p->adaptive_decay, seed)
                                            : llama_sampler_init_dist(seed));
    return chain;
}

static int likelier(const void *x, const void *y)
{
    const llama_token_data *a = x, *b = y;
    return a->p != b->p ? (a->p < b->p ? 1 : -1) : a->id - b->id;
}

static void put_hex(const char *s, int n)
{
    for (int i = 0; i < n; i++)
        printf("%02x", (unsigned char)s[i]);
}

/* What DRY asks of the vocabulary: the text of each token, and the tokens of each end of a breaker. What
 * infill asks: pieces, where they are something else. */
static void put_vocab(const struct llama_vocab *vocab)
{
    char text[256], piece[256];
    for (llama_token t = 0; t < llama_vocab_n_tokens(vocab); t++) {
        int n = llama_detokenize(vocab, &t, 1, text, sizeof text, false, true);
        printf("@ %d ", t);
        put_hex(text, n);
        putchar('\n');
        int k = llama_token_to_piece(vocab, t, piece, sizeof piece, 0, false);
        if (k == n && !memcmp(text, piece, (size_t)n))
            continue;
        printf("+ %d ", t);
        put_hex(piece, k);
        putchar('\n');
    }
}

static void put_tails(const struct params *p, const struct llama_vocab *vocab)
{
    char text[256];
    const char *breakers[64];
    strcpy(text, p->breakers);
    int n = split_breakers(text, breakers);
    for (int i = 0; i < n; i++) {
        for (const char *tail = breakers[i] + 1; *breakers[i] && *tail; tail++) {
            llama_token ids[64];
            int n_ids = llama_tokenize(vocab, tail, (int)strlen(tail), ids, 64, false, false);
            printf("~ ");
            put_hex(tail, (int)strlen(tail));
            for (int j = 0; j < n_ids; j++)
                printf(" %d", ids[j]);
            putchar('\n');
        }
    }
}

static void run(const struct params *p, const struct llama_vocab *vocab)
{
    size_t n = (size_t)p->n_vocab;
    float *logits = malloc(n * sizeof *logits);
    llama_token_data *data = malloc(n * sizeof *data);
    struct llama_sampler *chain = chain_of(p, vocab);
    for (int i = 0; i < p->n_prompt; i++)
        llama_sampler_accept(chain, (llama_token)p->prompt[i]);
    for (int step = 0; step < (int)p->steps; step++) {
        fill(logits, n, (uint64_t)p->logits + (uint64_t)step, p->spread);
        for (size_t i = 0; i < n; i++)
            data[i] = (llama_token_data){(llama_token)i, logits[i], 0};
        llama_token_data_array a = {data, n, -1, false};
        llama_sampler_apply(chain, &a);
        llama_token chosen = a.data[a.selected].id;
        llama_sampler_accept(chain, chosen);
        size_t left = 0;
        for (size_t i = 0; i < a.size; i++)
            left += a.data[i].p > 0;
        qsort(a.data, a.size, sizeof *a.data, likelier);
        printf("= %d %zu", chosen, left);
        for (size_t i = 0; i < left && i < SHOWN; i++)
            printf(" %d:%.7g", a.data[i].id, a.data[i].p);
        putchar('\n');
    }
    llama_sampler_free(chain);
    free(logits);
    free(data);
}

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

int main(int argc, char **argv)
{
    llama_log_set(quiet, NULL);
    struct llama_model_params mp = llama_model_default_params();
    mp.vocab_only = true;
    struct llama_model *model = argc > 1 ? llama_model_load_from_file(argv[1], mp) : NULL;
    if (!model) {
        fprintf(stderr, "usage: llama_sampler MODEL < cases > expected\n");
        return 1;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    printf("# Made by tests/tools/llama_sampler.c from cases.txt; the format is told there.\n");
    put_vocab(vocab);
    for (char line[4096]; fgets(line, sizeof line, stdin);) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        printf("%s", line);
        struct params p;
        parse(line, &p);
        if (p.dry_multiplier != 0)
            put_tails(&p, vocab);
        run(&p, vocab);
    }
    llama_model_free(model);
    return 0;
}
