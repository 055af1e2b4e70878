/* The base room: errors, memory, buffers, maps, parallel loops, log. */
#include "base/buf.h"
#include "base/cut.h"
#include "base/err.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/par.h"
#include "base/utf8.h"

#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wchar.h>

#include <cmocka.h>

/* --- err */

static void the_first_error_wins(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_int_equal(err_set(&err, ERR_IO, "first %d", 1), -1);
    assert_int_equal(err_set(&err, ERR_FORMAT, "second"), -1);
    assert_int_equal(err.code, ERR_IO);
    assert_string_equal(err.text, "first 1");
    assert_int_equal(err_set(NULL, ERR_IO, "nobody cares"), -1);
    err_prefix(NULL, "nobody");
}

static void prefixes_pile_up(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err_prefix(&err, "no error, no prefix");
    assert_string_equal(err.text, "");
    err_set(&err, ERR_IO, "gone");
    err_prefix(&err, "part %d", 2);
    err_prefix(&err, "model");
    assert_string_equal(err.text, "model: part 2: gone");
    assert_int_equal(err.code, ERR_IO);
}

static const struct {
    const char *in, *out;
} tidy_cases[] = {
    {"a\nb\tc\x1b[0m\x7f", "a?b?c?[0m?"},
    {"naïve 🦙 \xef\xbf\xbd", "naïve 🦙 \xef\xbf\xbd"},
    {"\x80\xff", "??"},
    {"a\xc3", "a?"},
    {"\xe2\x82z", "??z"},
    {"\xc0\xaf", "??"},           /* overlong */
    {"\xe0\x80\xaf", "???"},      /* overlong */
    {"\xed\xa0\x80", "???"},      /* a surrogate */
    {"\xf0\x8f\xbf\xbf", "????"}, /* overlong */
    {"\xf4\x90\x80\x80", "????"}, /* beyond U+10FFFF */
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
};

static void error_texts_are_one_line_of_utf8(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tidy_cases / sizeof tidy_cases[0]; i++) {
        struct err err = ERR_INIT;
        err_set(&err, ERR_IO, "%s", tidy_cases[i].in);
        assert_string_equal(err.text, tidy_cases[i].out);
        err = (struct err)ERR_INIT;
        err_set(&err, ERR_IO, "x");
        err_prefix(&err, "%s", tidy_cases[i].in);
        assert_memory_equal(err.text, tidy_cases[i].out, strlen(tidy_cases[i].out));
    }
}

/* Every sequence of up to four of these bytes is judged as C's own library does, which goes beyond U+10FFFF.
 */
static void utf8_lengths_agree_with_libc(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                          0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED,
                                          0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
    enum { N = sizeof bytes };
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL), before = uselocale(utf8);
    if (!utf8)
        skip();
    for (unsigned i = 0; i < N * N * N * N; i++) {
        char p[4] = {(char)bytes[i % N], (char)bytes[i / N % N], (char)bytes[i / N / N % N],
                     (char)bytes[i / N / N / N]};
        for (size_t left = 1; left <= 4; left++) {
            mbstate_t shift = {0};
            wchar_t wide = 0;
            size_t n = mbrtowc(&wide, p, left, &shift);
            assert_int_equal(utf8_len(p, left), n > 4 || wide > 0x10FFFF ? 0 : n);
        }
    }
    assert_int_equal(utf8_len("", 0), 0);
    uselocale(before);
    freelocale(utf8);
}

/* Cut texts end in a whole character, wherever the cut falls. */
static void long_error_texts_are_cut_at_characters(void **state)
{
    (void)state;
    char text[2048];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "🦙", 5);
        struct err err = ERR_INIT;
        err_set(&err, ERR_IO, "%s", text);
        size_t n = strlen(err.text);
        assert_in_range(n, sizeof err.text - 8, sizeof err.text - 1);
        assert_int_equal((n - shift) % 4, 0);
        assert_null(strchr(err.text, '?'));

        err = (struct err)ERR_INIT;
        err_set(&err, ERR_IO, "the cause");
        err_prefix(&err, "%s", text);
        assert_non_null(strstr(err.text, ": the cause"));
        assert_null(strchr(err.text, '?'));
    }
}

static void statuses(void **state)
{
    (void)state;
    assert_int_equal(err_exit_status(ERR_NONE), 0);
    assert_int_equal(err_exit_status(ERR_USAGE), 2);
    assert_int_equal(err_exit_status(ERR_FORMAT), 1);
    assert_int_equal(err_http_status(ERR_NONE), 200);
    assert_int_equal(err_http_status(ERR_USAGE), 400);
    assert_int_equal(err_http_status(ERR_UNSUPPORTED), 501);
    assert_int_equal(err_http_status((enum err_code)99), 500);
}

/* --- mem */

static void sizes_are_checked(void **state)
{
    (void)state;
    size_t n = 0;
    assert_true(mul_size(SIZE_MAX / 2, 2, &n));
    assert_true(n == SIZE_MAX - 1);
    assert_false(mul_size(SIZE_MAX / 2 + 1, 2, &n));
    assert_false(mul_size((size_t)1 << 32, (size_t)1 << 32, &n));
    assert_true(mul_size(0, SIZE_MAX, &n));
    assert_int_equal(n, 0);
    assert_true(add_size(SIZE_MAX - 1, 1, &n));
    assert_false(add_size(SIZE_MAX, 1, &n));
    assert_int_equal(align_up(0, 32), 0);
    assert_int_equal(align_up(1, 32), 32);
    assert_int_equal(align_up(32, 32), 32);
    assert_int_equal(align_up(33, 3), 33);
}

static void arena_gives_zeroed_aligned_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, 65535, 65536, 65537, 1 << 20, 3};
    struct arena a = {0};
    unsigned char *p[sizeof sizes / sizeof sizes[0] * 10];
    size_t count = 0;
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            unsigned char *q = arena_alloc(&a, sizes[i]);
            assert_int_equal((uintptr_t)q % 16, 0);
            for (size_t j = 0; j < sizes[i]; j++)
                assert_int_equal(q[j], 0);
            memset(q, (int)count, sizes[i]);
            p[count++] = q;
        }
    }
    for (size_t i = 0; i < count; i++) { /* nobody wrote into another's memory */
        for (size_t j = 0; j < sizes[i % (sizeof sizes / sizeof sizes[0])]; j++)
            assert_int_equal(p[i][j], (unsigned char)i);
    }
    assert_string_equal(arena_strndup(&a, "abcdef", 3), "abc");
    char *text = arena_printf(&a, "%0*d", 100000, 7);
    assert_int_equal(strlen(text), 100000);
    arena_release(&a);
    assert_null(a.last);
    arena_release(&a);
}

/* --- buf */

static void buffer_grows_and_terminates(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_null(b.p);
    for (int i = 0; i < 1000; i++) {
        buf_printf(&b, "%d,", i);
        assert_int_equal(b.p[b.n], '\0');
    }
    assert_int_equal(b.n, 10 * 2 + 90 * 3 + 900 * 4);
    assert_memory_equal(b.p, "0,1,2,", 6);
    buf_clear(&b);
    assert_string_equal(b.p, "");
    buf_add(&b, "a\0b", 3);
    buf_add(&b, NULL, 0);
    buf_putc(&b, '!');
    buf_puts(&b, "");
    assert_int_equal(b.n, 4);
    assert_memory_equal(b.p, "a\0b!", 5);
    assert_true(str_eq(buf_str(&b), (struct str){"a\0b!", 4}));
    buf_release(&b);
    assert_null(b.p);
}

static void buffer_stops_at_its_ceiling(void **state)
{
    (void)state;
    struct buf b = {.ceiling = 10};
    buf_puts(&b, "0123456789");
    assert_false(b.failed);
    buf_putc(&b, 'x');
    assert_true(b.failed);
    assert_string_equal(b.p, "0123456789");
    buf_clear(&b);
    buf_putc(&b, 'x'); /* once failed, nothing is added */
    assert_int_equal(b.n, 0);
    buf_release(&b);
    assert_false(b.failed);
    assert_int_equal(b.ceiling, 10);
    buf_printf(&b, "%s", "01234567890");
    assert_true(b.failed);
    buf_release(&b);

    b.ceiling = 0;
    assert_false(buf_reserve(&b, BUF_DEFAULT_CEILING + 1));
    buf_release(&b);
    b.ceiling = SIZE_MAX;
    buf_putc(&b, 'x');
    assert_false(buf_reserve(&b, SIZE_MAX - 1));
    buf_release(&b);
}

/* Encodings from the table in RFC 3629 and its examples. */
static void utf8_encodings(void **state)
{
    (void)state;
    struct buf b = {0};
    static const uint32_t cp[] = {0x41,  0x7F,   0x80,    0x2262,  0x391,   0x7FF,
                                  0x800, 0xFFFD, 0x10000, 0x233B4, 0x10FFFF};
    for (size_t i = 0; i < sizeof cp / sizeof cp[0]; i++)
        buf_put_utf8(&b, cp[i]);
    assert_string_equal(b.p, "A\x7F\xC2\x80\xE2\x89\xA2\xCE\x91\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBD"
                             "\xF0\x90\x80\x80\xF0\xA3\x8E\xB4\xF4\x8F\xBF\xBF");
    buf_release(&b);
}

/* --- str */

static void slices(void **state)
{
    (void)state;
    assert_true(str_is(str_of("abc"), "abc"));
    assert_false(str_is(str_of("abc"), "ab"));
    assert_true(str_starts(str_of("abc"), "ab"));
    assert_true(str_starts(str_of("abc"), ""));
    assert_false(str_starts(str_of("ab"), "abc"));
    assert_true(str_eq((struct str){NULL, 0}, str_of("")));
    char out[8192], long_text[5000];
    memset(long_text, 'x', sizeof long_text);
    assert_int_equal(snprintf(out, sizeof out, "%.*s", STR_ARG(((struct str){long_text, sizeof long_text}))),
                     4096);
}

/* --- map */

static void map_holds_what_was_put(void **state)
{
    (void)state;
    enum { N = 20000 };
    static char keys[N][16];
    struct map m = {0};
    uint64_t v = 0;
    assert_false(map_get(&m, str_of("a"), &v));
    for (uint64_t i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "key %u", (unsigned)i * 7919u);
        assert_true(map_add(&m, str_of(keys[i]), i, NULL));
    }
    assert_int_equal(m.n, N);
    for (uint64_t i = 0; i < N; i++) {
        assert_true(map_get(&m, str_of(keys[i]), &v));
        assert_int_equal(v, i);
        assert_false(map_add(&m, str_of(keys[i]), 1u << 30, &v));
        assert_int_equal(v, i);
        if (i % 3 == 0)
            map_set(&m, str_of(keys[i]), UINT64_MAX - i);
    }
    for (uint64_t i = 0; i < N; i++) {
        assert_true(map_get(&m, str_of(keys[i]), &v));
        assert_true(v == (i % 3 ? i : UINT64_MAX - i));
    }
    assert_int_equal(m.n, N);
    assert_false(map_get(&m, str_of("key 1"), &v));
    map_release(&m);
    assert_false(map_get(&m, str_of(keys[0]), &v));
}

/* Keys that differ in length, in a NUL, or in the last bytes of a word only. */
static void map_tells_near_keys_apart(void **state)
{
    (void)state;
    static const char zeros[40];
    struct map m = {0};
    uint64_t v;
    for (size_t n = 0; n <= sizeof zeros; n++)
        assert_true(map_add(&m, (struct str){zeros, n}, n, NULL));
    assert_true(map_add(&m, (struct str){"12345678a", 9}, 100, NULL));
    assert_true(map_add(&m, (struct str){"12345678b", 9}, 101, NULL));
    assert_true(map_add(&m, (struct str){"12345678", 8}, 102, NULL));
    assert_false(map_add(&m, (struct str){NULL, 0}, 7, &v)); /* the empty key */
    assert_int_equal(v, 0);
    for (size_t n = 0; n <= sizeof zeros; n++) {
        assert_true(map_get(&m, (struct str){zeros, n}, &v));
        assert_int_equal(v, n);
    }
    assert_true(map_get(&m, str_of("12345678b"), &v));
    assert_int_equal(v, 101);
    map_release(&m);
}

static void map_reserves_or_says_no(void **state)
{
    (void)state;
    struct map m = {0};
    assert_false(map_reserve(&m, SIZE_MAX));
    assert_false(map_reserve(&m, (size_t)1 << 62));
    assert_true(map_reserve(&m, 1000));
    size_t size = m.size;
    static char keys[1000][8];
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(keys[i], sizeof keys[i], "%u", i);
        map_set(&m, str_of(keys[i]), i);
    }
    assert_int_equal(m.size, size);
    map_release(&m);
}

/* --- par */

static void count_visits(void *ctx, size_t begin, size_t end)
{
    unsigned char *visits = ctx;
    for (size_t i = begin; i < end; i++)
        visits[i]++;
}

static void loops_visit_everything_once(void **state)
{
    (void)state;
    static const size_t ns[] = {0, 1, 2, 7, 64, 1000, 4097}, grains[] = {0, 1, 3, 64, 5000, SIZE_MAX};
    static const int threads[] = {0, 1, 2, 5, 1000};
    unsigned char visits[4098];
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++) {
        for (size_t j = 0; j < sizeof grains / sizeof grains[0]; j++) {
            for (size_t k = 0; k < sizeof threads / sizeof threads[0]; k++) {
                memset(visits, 0, sizeof visits);
                par_for(ns[i], grains[j], threads[k], count_visits, visits);
                for (size_t x = 0; x < sizeof visits; x++)
                    assert_int_equal(visits[x], x < ns[i]);
            }
        }
    }
    assert_true(par_cpus() >= 1);
}

static void check_piece(void *ctx, size_t begin, size_t end)
{
    if (begin % 10 != 0 || end - begin > 10 || end <= begin)
        *(bool *)ctx = false;
}

static void pieces_are_no_longer_than_the_grain(void **state)
{
    (void)state;
    bool good = true;
    par_for(95, 10, 3, check_piece, &good);
    assert_true(good);
}

/* --- log */

static void *write_lines(void *arg)
{
    for (int i = 0; i < 200; i++)
        log_at(LOG_WARN, "thread %c says %0100d", *(char *)arg, i);
    return NULL;
}

/* With stderr away, what reaches the file: levels, marks, whole lines from several threads. */
static void log_lines(void **state)
{
    (void)state;
    char path[] = "/tmp/grappa-log-XXXXXX", line[512];
    int fd = mkstemp(path), saved = dup(2);
    assert_true(fd >= 0 && saved >= 0);
    assert_non_null(freopen("/dev/null", "w", stderr));
    assert_int_equal(log_set_file("/nonexistent/folder/log"), -1);
    assert_int_equal(log_set_file(path), 0);
    assert_int_equal(log_get_level(), LOG_WARN);
    log_info("not shown");
    log_at(LOG_ERROR, "bad");
    log_set_level(LOG_INFO);
    log_info("shown %d", 1);
    log_debug("not shown");
    pthread_t id[4];
    char names[] = "abcd";
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&id[i], NULL, write_lines, &names[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(id[i], NULL);
    log_set_level(LOG_WARN);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);

    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_string_equal(fgets(line, sizeof line, f), "grappa: bad\n");
    assert_string_equal(fgets(line, sizeof line, f), "shown 1\n");
    int next[4] = {0};
    while (fgets(line, sizeof line, f)) {
        char who;
        int i;
        assert_int_equal(sscanf(line, "grappa: warning: thread %c says %d\n", &who, &i), 2);
        assert_int_equal(i, next[who - 'a']++);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(next[i], 200);
    fclose(f);
    close(fd);
    unlink(path);
}

/* --- cut */

static void cut_files_end_in_zeros(void **state)
{
    enum { PAGE = 4096, N = 4 * PAGE };
    (void)state;
    FILE *f = tmpfile();
    assert_non_null(f);
    for (int i = 0; i < N; i++)
        assert_int_equal(fputc(7, f), 7);
    assert_int_equal(fflush(f), 0);
    const volatile char *p = mmap(NULL, N, PROT_READ, MAP_PRIVATE, fileno(f), 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    cut_files_read_as_zeros();
    assert_int_equal(ftruncate(fileno(f), PAGE + 100), 0);
    assert_int_equal(p[N - 1], 0);
    assert_int_equal(p[2 * PAGE], 0);
    assert_int_equal(p[PAGE + 100], 0);
    assert_int_equal(p[PAGE + 99], 7);
    assert_int_equal(p[0], 7);
    munmap((void *)(uintptr_t)p, N);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_error_wins),
        cmocka_unit_test(prefixes_pile_up),
        cmocka_unit_test(error_texts_are_one_line_of_utf8),
        cmocka_unit_test(utf8_lengths_agree_with_libc),
        cmocka_unit_test(long_error_texts_are_cut_at_characters),
        cmocka_unit_test(statuses),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(buffer_grows_and_terminates),
        cmocka_unit_test(buffer_stops_at_its_ceiling),
        cmocka_unit_test(utf8_encodings),
        cmocka_unit_test(slices),
        cmocka_unit_test(map_holds_what_was_put),
        cmocka_unit_test(map_tells_near_keys_apart),
        cmocka_unit_test(map_reserves_or_says_no),
        cmocka_unit_test(loops_visit_everything_once),
        cmocka_unit_test(pieces_are_no_longer_than_the_grain),
        cmocka_unit_test(log_lines),
        cmocka_unit_test(cut_files_end_in_zeros),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
