/* The block pool against a model of it: sequences that are simply arrays of numbers. After every operation
 * the numbers read through the blocks must be those of the arrays, and the books of the pool must balance. */
#include "engine/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 4, BLOCKS = 13, SEQS = 5, TENSORS = 2, TOKENS_MAX = BLOCK * BLOCKS, SLACK = 5 };

/* In each tensor a token takes some bytes, all of which hold its number. */
static const size_t token_bytes[TENSORS] = {4, 12};

struct pool {
    struct kv kv;
    int32_t want[SEQS][TOKENS_MAX];
    int32_t n[SEQS];
    int32_t next; /* a number that was never written */
};

static void pool_init_window(struct pool *p, int32_t window)
{
    size_t bytes[TENSORS];
    struct err err = ERR_INIT;
    *p = (struct pool){.next = 1};
    for (int t = 0; t < TENSORS; t++)
        bytes[t] = BLOCK * token_bytes[t];
    const struct kv_shape shape = {.block_size = BLOCK,
                                   .n_blocks = BLOCKS,
                                   .n_seqs = SEQS,
                                   .seq_blocks = TOKENS_MAX / BLOCK,
                                   .window = window,
                                   .slack = window ? SLACK : 0};
    if (kv_init(&p->kv, &shape, bytes, TENSORS, &err) != 0)
        fail_msg("%s", err.text);
}

static void pool_init(struct pool *p)
{
    pool_init_window(p, 0);
}

static char *token_at(const struct kv *kv, int t, int32_t seq, int32_t i)
{
    const struct kv_tensor *c = &kv->tensors[t];
    return c->data + (size_t)kv->seqs[seq].blocks[i / BLOCK] * c->block_bytes +
           (size_t)(i % BLOCK) * token_bytes[t];
}

/* What an inference does with the tokens that a sequence has just grown by. */
static void write_tokens(struct pool *p, int32_t seq, int32_t first, int32_t n)
{
    for (int32_t i = first; i < first + n; i++) {
        int32_t number = p->want[seq][i] = p->next++;
        for (int t = 0; t < TENSORS; t++) {
            for (size_t b = 0; b < token_bytes[t]; b += sizeof number)
                memcpy(token_at(&p->kv, t, seq, i) + b, &number, sizeof number);
        }
    }
}

static void check_contents(const struct pool *p)
{
    for (int32_t s = 0; s < SEQS; s++) {
        assert_int_equal(p->kv.seqs[s].n_tokens, p->n[s]);
        for (int32_t i = p->kv.seqs[s].first * BLOCK; i < p->n[s]; i++) {
            for (int t = 0; t < TENSORS; t++) {
                for (size_t b = 0; b < token_bytes[t]; b += sizeof(int32_t)) {
                    int32_t number;
                    memcpy(&number, token_at(&p->kv, t, s, i) + b, sizeof number);
                    assert_int_equal(number, p->want[s][i]);
                }
            }
        }
    }
}

/* Every block is counted once for each sequence that has it, or else free, and in the free list once. */
static void check_books(const struct pool *p)
{
    const struct kv *kv = &p->kv;
    int32_t refs[BLOCKS] = {0}, in_list[BLOCKS] = {0};
    for (int32_t s = 0; s < SEQS; s++) {
        assert_int_equal(kv->seqs[s].n_blocks, (kv->seqs[s].n_tokens + BLOCK - 1) / BLOCK);
        for (int32_t i = kv->seqs[s].first; i < kv->seqs[s].n_blocks; i++) {
            assert_in_range(kv->seqs[s].blocks[i], 0, BLOCKS - 1);
            refs[kv->seqs[s].blocks[i]]++;
        }
    }
    for (int32_t i = 0; i < kv->n_free; i++)
        in_list[kv->free_list[i]]++;
    for (int32_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(kv->refs[b], refs[b]);
        assert_int_equal(in_list[b], refs[b] == 0);
    }
}

/* Everything but the memory of the tensors. */
struct snapshot {
    int32_t n_free, free_list[BLOCKS], refs[BLOCKS];
    int32_t n_blocks[SEQS], n_tokens[SEQS], blocks[SEQS][BLOCKS];
};

static struct snapshot snap(const struct kv *kv)
{
    struct snapshot s;
    memset(&s, 0, sizeof s);
    s.n_free = kv->n_free;
    memcpy(s.free_list, kv->free_list, (size_t)kv->n_free * sizeof *kv->free_list);
    memcpy(s.refs, kv->refs, sizeof s.refs);
    for (int32_t i = 0; i < SEQS; i++) {
        s.n_blocks[i] = kv->seqs[i].n_blocks;
        s.n_tokens[i] = kv->seqs[i].n_tokens;
        memcpy(s.blocks[i], kv->seqs[i].blocks, (size_t)s.n_blocks[i] * sizeof **s.blocks);
    }
    return s;
}

/* Grows a sequence, if the pool has room; the forecast must be exact. Returns whether it grew. */
static bool extend(struct pool *p, int32_t seq, int32_t n)
{
    struct kv *kv = &p->kv;
    struct snapshot before = snap(kv);
    int32_t forecast = kv_blocks_for(kv, seq, n);
    if (kv_extend(kv, seq, n) != 0) {
        struct snapshot after = snap(kv);
        assert_true(forecast > before.n_free);
        assert_memory_equal(&before, &after, sizeof before);
        return false;
    }
    assert_int_equal(before.n_free - kv->n_free, forecast);
    write_tokens(p, seq, p->n[seq], n);
    p->n[seq] += n;
    return true;
}

static void trim(struct pool *p, int32_t seq, int32_t n)
{
    kv_trim(&p->kv, seq, n);
    if (n < p->n[seq])
        p->n[seq] = n;
}

static void copy(struct pool *p, int32_t src, int32_t dst)
{
    kv_copy(&p->kv, src, dst);
    p->n[dst] = p->n[src];
    if (src != dst)
        memcpy(p->want[dst], p->want[src], sizeof p->want[dst]);
}

static void check(const struct pool *p)
{
    check_books(p);
    check_contents(p);
}

static void test_growing(void **state)
{
    (void)state;
    struct pool p;
    pool_init(&p);
    check(&p);
    assert_int_equal(kv_blocks_for(&p.kv, 0, 0), 0);
    assert_int_equal(kv_blocks_for(&p.kv, 0, 1), 1);
    assert_int_equal(kv_blocks_for(&p.kv, 0, BLOCK), 1);
    assert_int_equal(kv_blocks_for(&p.kv, 0, BLOCK + 1), 2);
    assert_int_equal(kv_blocks_for(&p.kv, 0, INT32_MAX), INT32_MAX / BLOCK + 1);
    for (int32_t i = 0; i < BLOCK * 2; i++) {
        assert_true(extend(&p, 0, 1));
        assert_int_equal(p.kv.n_free, BLOCKS - 1 - i / BLOCK);
        check(&p);
    }
    assert_true(extend(&p, 0, 0));
    assert_true(extend(&p, 1, 2 * BLOCK + 3));
    assert_int_equal(p.kv.n_free, BLOCKS - 5);
    check(&p);
    kv_release(&p.kv);
}

static void test_an_empty_pool_changes_nothing(void **state)
{
    (void)state;
    struct pool p;
    pool_init(&p);
    assert_false(extend(&p, 0, TOKENS_MAX + 1));
    assert_true(extend(&p, 0, TOKENS_MAX - 2));
    assert_int_equal(p.kv.n_free, 0);
    assert_false(extend(&p, 1, 1));
    assert_false(extend(&p, 0, 3));
    assert_true(extend(&p, 0, 2)); /* the last block's rest needs no new one */
    assert_false(extend(&p, 0, 1));
    check(&p);
    /* A shared last block has to be copied, and there is nothing to copy it to. */
    trim(&p, 0, TOKENS_MAX - 1);
    copy(&p, 0, 1);
    assert_int_equal(kv_blocks_for(&p.kv, 0, 1), 1);
    assert_false(extend(&p, 0, 1));
    assert_false(extend(&p, 1, 1));
    trim(&p, 1, 0);
    assert_true(extend(&p, 0, 1));
    check(&p);
    kv_release(&p.kv);
}

static void test_trimming(void **state)
{
    (void)state;
    struct pool p;
    pool_init(&p);
    extend(&p, 0, 3 * BLOCK + 1);
    trim(&p, 0, 4 * BLOCK); /* longer than it is */
    assert_int_equal(p.kv.seqs[0].n_tokens, 3 * BLOCK + 1);
    for (int32_t n = 3 * BLOCK + 1; n >= 0; n--) {
        trim(&p, 0, n);
        assert_int_equal(p.kv.n_free, BLOCKS - (n + BLOCK - 1) / BLOCK);
        check(&p);
    }
    trim(&p, 0, 0);
    check(&p);
    kv_release(&p.kv);
}

static void test_copies_share_until_written(void **state)
{
    (void)state;
    struct pool p;
    pool_init(&p);
    extend(&p, 0, 2 * BLOCK + 2);
    copy(&p, 0, 1);
    copy(&p, 0, 2);
    copy(&p, 0, 0);
    assert_int_equal(p.kv.n_free, BLOCKS - 3);
    check(&p);
    assert_true(extend(&p, 1, 1)); /* copies the last block */
    assert_int_equal(p.kv.n_free, BLOCKS - 4);
    check(&p);
    assert_true(extend(&p, 0, 1));
    assert_int_equal(p.kv.n_free, BLOCKS - 5);
    check(&p);
    assert_true(extend(&p, 2, 1)); /* the only one left that reads it */
    assert_int_equal(p.kv.n_free, BLOCKS - 5);
    check(&p);
    /* At the end of a block nothing is written to what is shared. */
    trim(&p, 0, BLOCK);
    copy(&p, 0, 3);
    assert_int_equal(kv_blocks_for(&p.kv, 3, 1), 1);
    assert_true(extend(&p, 3, 1));
    check(&p);
    /* Cut into the middle of a block that others still have whole. */
    trim(&p, 3, BLOCK - 1);
    assert_int_equal(kv_blocks_for(&p.kv, 3, 1), 1);
    assert_true(extend(&p, 3, BLOCK));
    check(&p);
    copy(&p, 1, 3);
    check(&p);
    kv_release(&p.kv);
}

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

static void random_operation(struct pool *p, uint64_t *rng)
{
    int32_t s = (int32_t)random_below(rng, SEQS);
    switch (random_below(rng, 8)) {
    case 0:
        trim(p, s, (int32_t)random_below(rng, (uint32_t)p->n[s] + 2));
        break;
    case 1:
        copy(p, s, (int32_t)random_below(rng, SEQS));
        break;
    case 2:
        trim(p, s, 0);
        break;
    case 3:
        extend(p, s, (int32_t)random_below(rng, 3 * BLOCK));
        break;
    default: /* mostly as in decoding */
        extend(p, s, 1);
    }
}

static void test_random_operations(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct pool p;
        uint64_t rng = seed;
        int refused = 0;
        pool_init(&p);
        for (int i = 0; i < 2000; i++) {
            int32_t free_before = p.kv.n_free;
            random_operation(&p, &rng);
            check(&p);
            refused += free_before == 0;
        }
        assert_true(refused > 20); /* the pool was small enough to run dry */
        for (int32_t s = 0; s < SEQS; s++)
            trim(&p, s, 0);
        assert_int_equal(p.kv.n_free, BLOCKS);
        check(&p);
        kv_release(&p.kv);
    }
}

/* ---- windows: what a token reads is there, what it will never read again is not ---- */

static void slide(struct pool *p)
{
    kv_slide(&p->kv);
    for (int32_t i = 0; i < SEQS; i++) {
        const struct kv_seq *s = &p->kv.seqs[i];
        int32_t oldest = s->n_tokens - p->kv.slack - (p->kv.window - 1); /* that may still be read */
        assert_true(s->first >= (oldest > 0 ? oldest / BLOCK : 0));      /* more, if it was cut back */
        assert_true(s->n_blocks - s->first <= kv_window_blocks(BLOCK, p->kv.window, p->kv.slack));
    }
}

static void test_windows(void **state)
{
    (void)state;
    for (int32_t window = 1; window <= 2 * BLOCK + 1; window++) {
        struct pool p;
        pool_init_window(&p, window);
        /* Longer than the pool, since it lets go; back by the slack and no further. */
        for (int32_t n = 0; n < TOKENS_MAX; n++) {
            assert_true(extend(&p, 0, 1));
            slide(&p);
            check(&p);
            int32_t oldest = n + 1 - SLACK - (window - 1);
            assert_int_equal(p.kv.seqs[0].first, oldest > 0 ? oldest / BLOCK : 0);
        }
        int32_t kept = p.kv.seqs[0].first;
        for (int32_t n = TOKENS_MAX; n >= 0; n--) {
            bool there = n == 0 || n - window + 1 >= kept * BLOCK;
            assert_int_equal(kv_trim_point(&p.kv, 0, n), there || kept == 0 ? n : 0);
            assert_true(n < TOKENS_MAX - SLACK || there);
        }
        copy(&p, 0, 1);
        trim(&p, 0, TOKENS_MAX - SLACK);
        check(&p);
        assert_true(extend(&p, 0, SLACK));
        check(&p);
        trim(&p, 0, 0);
        trim(&p, 1, 0);
        assert_int_equal(p.kv.n_free, BLOCKS);
        assert_true(extend(&p, 0, 3));
        check(&p);
        kv_release(&p.kv);
    }
}

static void test_random_operations_with_windows(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct pool p;
        uint64_t rng = seed;
        pool_init_window(&p, 1 + (int32_t)(seed % 9));
        for (int i = 0; i < 2000; i++) {
            int32_t s = (int32_t)random_below(&rng, SEQS), n = (int32_t)random_below(&rng, 7);
            if (n < 2)
                trim(&p, s, kv_trim_point(&p.kv, s, (int32_t)random_below(&rng, (uint32_t)p.n[s] + 1)));
            else if (n == 2)
                copy(&p, s, (int32_t)random_below(&rng, SEQS));
            else if (n == 3)
                slide(&p);
            else if (p.n[s] + n <= TOKENS_MAX)
                extend(&p, s, n == 4 ? n : 1);
            check(&p);
        }
        for (int32_t s = 0; s < SEQS; s++)
            trim(&p, s, 0);
        assert_int_equal(p.kv.n_free, BLOCKS);
        kv_release(&p.kv);
    }
}

static void test_more_than_an_address_space(void **state)
{
    (void)state;
    struct kv kv;
    struct err err = ERR_INIT;
    size_t bytes[] = {64, SIZE_MAX / 4, 64};
    const struct kv_shape shape = {.block_size = BLOCK, .n_blocks = BLOCKS, .n_seqs = SEQS};
    assert_int_equal(kv_init(&kv, &shape, bytes, 3, &err), -1);
    assert_int_equal(err.code, ERR_MEMORY);
    assert_string_equal(err.text, "no memory for a KV cache of 13 blocks: Cannot allocate memory");
    bytes[1] = (size_t)1 << 55; /* no overflow, but no such memory either */
    err = (struct err)ERR_INIT;
    assert_int_equal(kv_init(&kv, &shape, bytes, 3, &err), -1);
    assert_int_equal(err.code, ERR_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_an_empty_pool_changes_nothing),
        cmocka_unit_test(test_trimming),
        cmocka_unit_test(test_copies_share_until_written),
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_random_operations_with_windows),
        cmocka_unit_test(test_more_than_an_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
