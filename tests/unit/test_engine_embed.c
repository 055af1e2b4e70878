/* Embeddings against llama.cpp's (tests/golden/embed/llama.txt): every pooling, in one piece and in several,
 * alone and several at once. */
#include <grappa-engine.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY   SOURCE_DIR "/.models/tiny/"
#define GOLDEN SOURCE_DIR "/tests/golden/embed/llama.txt"

enum { LENGTH = 15, MAX_EMBD = 256 };

static const char *const names[] = {"none", "mean", "cls", "last"};

static struct golden {
    int n[4]; /* rows */
    int n_embd;
    float row[4][LENGTH][MAX_EMBD];
} golden;

static int read_golden(void)
{
    static char line[MAX_EMBD * 16];
    FILE *f = fopen(GOLDEN, "r");
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        int used = 0, at, row;
        char name[8], *p;
        if (sscanf(line, "%7s %d%n", name, &row, &used) != 2 || line[0] == '#')
            continue;
        for (at = 0; at < 3 && strcmp(names[at], name) != 0;)
            at++;
        golden.n[at] = row + 1;
        p = line + used;
        for (golden.n_embd = 0; *p && *p != '\n' && golden.n_embd < MAX_EMBD; golden.n_embd++)
            golden.row[at][row][golden.n_embd] = strtof(p, &p);
    }
    fclose(f);
    return 0;
}

struct subject {
    struct grappa_model *m;
    struct grappa_engine *e;
};

static int load(void **state)
{
    static struct subject s;
    struct grappa_err err;
    const struct grappa_model_params exact = {.precision = GRAPPA_TYPE_F32,
                                              .type_k = GRAPPA_TYPE_F32,
                                              .type_v = GRAPPA_TYPE_F32,
                                              .n_threads = 2,
                                              .embeddings = true};
    s.m = grappa_model_load(TINY "llama.gguf", &exact, &err);
    if (!s.m || read_golden() < 0) {
        print_error("%s\n", s.m ? GOLDEN : err.text);
        return -1;
    }
    *state = &s;
    return 0;
}

static int unload(void **state)
{
    grappa_model_free(((struct subject *)*state)->m);
    return 0;
}

static int close_engine(void **state)
{
    struct subject *s = *state;
    grappa_engine_free(s->e);
    s->e = NULL;
    return 0;
}

struct answer {
    float *rows;
    int32_t n_rows, n_embd;
    enum grappa_finish finish;
    struct grappa_request *r;
};

static bool on_event(void *user, const struct grappa_event *ev)
{
    struct answer *a = user;
    if (ev->type != GRAPPA_EVENT_DONE)
        return true;
    a->n_rows = ev->n_rows;
    a->n_embd = ev->n_embd;
    a->finish = ev->finish;
    size_t bytes = (size_t)ev->n_rows * (size_t)ev->n_embd * sizeof(float);
    a->rows = malloc(bytes + 1);
    if (bytes)
        memcpy(a->rows, ev->embedding, bytes);
    return true;
}

static void start(struct subject *s, struct answer *a, enum grappa_pooling pooling)
{
    struct grappa_err err;
    struct grappa_request_params p;
    grappa_token t[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        t[i] = 3 + 7 * i;
    grappa_request_defaults(&p);
    p.prompt = t;
    p.n_prompt = LENGTH;
    p.embeddings = true;
    p.pooling = pooling;
    p.on_event = on_event;
    p.user = a;
    a->r = grappa_request_new(s->e, &p, &err);
    if (!a->r)
        fail_msg("%s", err.text);
}

/* Normalised mean squared error. */
static double nmse(const float *got, const float *want, int n)
{
    double error = 0, size = 0;
    for (int i = 0; i < n; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    return error / size;
}

static void expect_golden(struct answer *a, enum grappa_pooling pooling)
{
    grappa_request_wait(a->r);
    grappa_request_free(a->r);
    assert_int_equal(a->finish, GRAPPA_FINISH_EOS);
    assert_int_equal(a->n_rows, golden.n[pooling]);
    assert_int_equal(a->n_embd, golden.n_embd);
    for (int i = 0; i < a->n_rows; i++) {
        double error = nmse(a->rows + i * a->n_embd, golden.row[pooling][i], a->n_embd);
        if (!(error < 1e-10))
            fail_msg("pooling %s, row %d: NMSE %g", names[pooling], i, error);
    }
    free(a->rows);
}

static void open_engine(struct subject *s, uint32_t n_batch)
{
    struct grappa_err err;
    s->e = grappa_engine_new(
        s->m,
        &(struct grappa_engine_params){.n_ctx = 256, .n_batch = n_batch, .n_slots = 4, .embeddings = true},
        &err);
    if (!s->e)
        fail_msg("%s", err.text);
}

static void test_poolings(void **state)
{
    static const uint32_t pieces[] = {64, 7, 4};
    struct subject *s = *state;
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
        struct answer a[4];
        open_engine(s, pieces[k]);
        for (int p = 0; p < 4; p++) {
            start(s, &a[p], (enum grappa_pooling)p);
            expect_golden(&a[p], (enum grappa_pooling)p);
        }
        for (int p = 0; p < 4; p++)
            start(s, &a[p], (enum grappa_pooling)p);
        for (int p = 0; p < 4; p++)
            expect_golden(&a[p], (enum grappa_pooling)p);
        close_engine(state);
    }
}

static void test_no_text(void **state)
{
    struct subject *s = *state;
    struct grappa_err err;
    struct grappa_request_params p;
    open_engine(s, 0);
    grappa_request_defaults(&p);
    p.prompt = &(grappa_token){3};
    p.n_prompt = 1;
    assert_null(grappa_request_new(s->e, &p, &err));
    assert_string_equal(err.text, "this engine gives embeddings, not text");
    close_engine(state);
    assert_null(grappa_engine_new(s->m, NULL, &err));
    assert_string_equal(err.text, "the model was loaded for embeddings only");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_poolings, close_engine),
        cmocka_unit_test_teardown(test_no_text, close_engine),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
