/* Gates against libm in f64: over the range where they bend, at its ends, and with `out` in the place of an
 * input. */
#include "kernels/gate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N = 4099 }; /* a prime: every vector width has a tail */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double relu(double x)
{
    return x > 0 ? x : 0;
}

/* Largest difference over the larger of the value and the smallest activation that matters. */
static double worst(enum gate act, double (*exact)(double), double from, double to)
{
    static float x[N], up[N], y[N];
    double w = 0;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(from + (to - from) * i / (N - 1));
        up[i] = i % 3 == 0 ? -2.0f : 0.5f;
    }
    gate_rows(act, x, up, y, N);
    for (int i = 0; i < N; i++) {
        double want = exact((double)x[i]) * (double)up[i];
        double e = fabs((double)y[i] - want) / (fabs(want) + 1e-3);
        w = e > w ? e : w;
    }
    return w;
}

static void close_to_libm(void **state)
{
    (void)state;
    assert_true(worst(GATE_SILU, silu, -20, 20) < 1e-6);
    assert_true(worst(GATE_SILU, silu, -1e-3, 1e-3) < 1e-6);
    assert_true(worst(GATE_RELU, relu, -10, 10) == 0);
    assert_true(worst(GATE_GELU_TANH, gelu_tanh, -10, 10) < 2e-6);
}

static void far_out(void **state)
{
    (void)state;
    float x[] = {1000, -1000, 88, -88, 0, -0.0f}, one[] = {1, 1, 1, 1, 1, 1}, y[6];
    for (enum gate act = GATE_SILU; act <= GATE_GELU_TANH; act++) {
        gate_rows(act, x, one, y, 6);
        assert_true(y[0] == 1000 && y[2] == 88);
        assert_true(fabsf(y[1]) < 1e-30f && fabsf(y[3]) < 1e-30f);
        assert_true(y[4] == 0 && y[5] == 0);
    }
}

static void in_place(void **state)
{
    (void)state;
    float gate[5] = {-2, -1, 0, 1, 2}, up[5] = {1, 2, 3, 4, 5}, apart[5];
    gate_rows(GATE_SILU, gate, up, apart, 5);
    gate_rows(GATE_SILU, gate, up, up, 5);
    assert_memory_equal(up, apart, sizeof up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_libm),
        cmocka_unit_test(far_out),
        cmocka_unit_test(in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
