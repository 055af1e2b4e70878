/* Sequences of a context: a beginning is computed once, copied (the copies share its blocks of memory), goes
 * on in two ways within the same steps, and one of them is kept in a file.
 *
 *     sequences model.gguf state-file "A beginning" " that ends so" " or like this" */
#include <grappa.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = 2, N_PREDICT = 16, MAX_TOKENS = 4096 };

struct text {
    grappa_token token[MAX_TOKENS];
    size_t n;
};

static int add(struct text *t, const struct grappa_vocab *v, const char *s, bool begins,
               struct grappa_err *err)
{
    size_t n = 0;
    grappa_token *tokens = grappa_tokenize_new(v, s, strlen(s), begins, true, &n, err);
    if (!tokens || n > MAX_TOKENS - N_PREDICT - t->n) {
        free(tokens);
        return -1;
    }
    memcpy(t->token + t->n, tokens, n * sizeof *tokens);
    t->n += n;
    free(tokens);
    return 0;
}

static grappa_token most_probable(const float *logits, int32_t n)
{
    grappa_token best = 0;
    for (grappa_token t = 1; t < n; t++)
        best = logits[t] > logits[best] ? t : best;
    return best;
}

/* The rest of a text that its sequence doesn't hold yet. */
static int go_on(struct grappa_context *c, int32_t seq, const struct text *t, struct grappa_err *err)
{
    size_t held = (size_t)grappa_seq_len(c, seq);
    int32_t seqs[MAX_TOKENS];
    for (size_t i = held; i < t->n; i++)
        seqs[i - held] = seq;
    struct grappa_batch b = {.n = t->n - held, .token = t->token + held, .seq_id = seqs};
    return grappa_decode(c, &b, err);
}

/* All texts grow by one token in each step. */
static int write_together(struct grappa_context *c, const struct grappa_vocab *v, struct text text[N_TEXTS],
                          struct grappa_err *err)
{
    const int8_t logits[N_TEXTS] = {1, 1};
    const int32_t seqs[N_TEXTS] = {0, 1};
    grappa_token last[N_TEXTS];
    for (int i = 0; i < N_TEXTS; i++) {
        if (go_on(c, i, &text[i], err) < 0)
            return -1;
        last[i] = most_probable(grappa_logits(c, -1), grappa_vocab_n_tokens(v));
    }
    for (int n = 0; n < N_PREDICT; n++) {
        for (int i = 0; i < N_TEXTS; i++)
            text[i].token[text[i].n++] = last[i];
        struct grappa_batch b = {.n = N_TEXTS, .token = last, .seq_id = seqs, .logits = logits};
        if (grappa_decode(c, &b, err) < 0)
            return -1;
        for (int i = 0; i < N_TEXTS; i++)
            last[i] = most_probable(grappa_logits(c, i), grappa_vocab_n_tokens(v));
    }
    return 0;
}

static void print(const struct grappa_vocab *v, const struct text *t)
{
    struct grappa_stream *s = grappa_stream_new(v, false);
    for (size_t i = 0, n; i < t->n; i++) {
        const char *piece = grappa_stream_add(s, t->token[i], &n);
        fwrite(piece, 1, n, stdout);
    }
    putchar('\n');
    grappa_stream_free(s);
}

int main(int argc, char **argv)
{
    struct grappa_err err = {0};
    static struct text text[N_TEXTS], back;
    int status = 1;
    if (argc != 4 + N_TEXTS) {
        fprintf(stderr, "usage: %s model.gguf STATE-FILE BEGINNING END END\n", argv[0]);
        return 2;
    }
    const struct grappa_context_params p = {.n_seq_max = N_TEXTS};
    struct grappa_model *m = grappa_model_load(argv[1], NULL, &err);
    struct grappa_context *c = m ? grappa_context_new(m, &p, &err) : NULL;
    if (!c)
        goto done;
    const struct grappa_vocab *v = grappa_model_vocab(m);
    if (add(&text[0], v, argv[3], true, &err) < 0 || go_on(c, 0, &text[0], &err) < 0 ||
        grappa_seq_copy(c, 0, 1, &err) < 0)
        goto done;
    text[1] = text[0];
    for (int i = 0; i < N_TEXTS; i++) {
        if (add(&text[i], v, argv[4 + i], false, &err) < 0)
            goto done;
    }
    if (write_together(c, v, text, &err) < 0)
        goto done;
    for (int i = 0; i < N_TEXTS; i++)
        print(v, &text[i]);

    /* Written to a file, forgotten, read back: the same tokens, and the context holds them again. */
    if (grappa_seq_save(c, 1, text[1].token, argv[2], NULL, &err) < 0 || grappa_seq_trim(c, 1, 0, &err) < 0)
        goto done;
    int64_t n = grappa_seq_restore(c, 1, argv[2], back.token, MAX_TOKENS, NULL, &err);
    if (n < 0)
        goto done;
    back.n = (size_t)n;
    bool same = back.n == text[1].n && memcmp(back.token, text[1].token, back.n * sizeof *back.token) == 0;
    printf("%s after %d tokens\n", same ? "restored" : "not the same", grappa_seq_len(c, 1));
    status = same ? 0 : 1;
done:
    if (status && err.text[0])
        fprintf(stderr, "%s\n", err.text);
    grappa_context_free(c);
    grappa_model_free(m);
    return status;
}
