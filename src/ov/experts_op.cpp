// The operation "GgufExperts": the sum of each row's chosen experts. The work and its division are in
// kernels/experts.h, the threads are the plugin's own pool. See ov/experts_op.h.
#include "ov/experts_op.h"

#include "ov/own_op.hpp"

#include <tbb/parallel_for.h>

namespace {

thread_local TableInUse<struct experts> table; // see ov_experts_table_use

struct ExpertsSettings {
    int64_t index = -1;
    const struct experts *experts = nullptr; // the row of that index

    void visit(ov::AttributeVisitor &v)
    {
        v.on_attribute("index", index);
    }
};

class GgufExperts : public OwnOp<GgufExperts, ExpertsSettings> {
  public:
    OPENVINO_OP("GgufExperts", "grappa");
    GgufExperts() = default;

    void validate_and_infer_types() override
    {
        auto &experts = settings.experts;
        if (!experts)
            experts = table.at("GgufExperts", settings.index);
        auto x = get_input_partial_shape(0), ids = get_input_partial_shape(1);
        auto cols = static_cast<int64_t>(experts->cols);
        OPENVINO_ASSERT(x.rank() == 2 && x[1].compatible(cols), "GgufExperts wants rows of ", cols);
        OPENVINO_ASSERT(ids.compatible(get_input_partial_shape(2)),
                        "GgufExperts wants a weight for each expert");
        set_output_type(0, ov::element::f32, {x[0], cols});
    }

    bool evaluate(ov::TensorVector &out, const ov::TensorVector &in) const override
    {
        thread_local Scratch scratch;
        auto experts = settings.experts;
        size_t m = in[0].get_shape()[0], k = in[1].get_shape()[1], cols = experts->cols;
        out[0].set_shape({m, cols});
        const float *x = in[0].data<const float>(), *weights = in[2].data<const float>();
        const int32_t *ids = in[1].data<const int32_t>();
        float *y = out[0].data<float>();
        for (size_t at = 0; at < m; at += block) {
            size_t n = m - at < block ? m - at : block, size = experts_scratch_size(experts, n, k);
            OPENVINO_ASSERT(size > 0, "GgufExperts: ", n, " rows with ", k, " experts are too many");
            step(n, k, x + at * cols, ids + at * k, weights + at * k, y + at * cols, scratch.get(size));
        }
        return true;
    }

  private:
    // Rows at a time: more would only make the scratch larger.
    static constexpr size_t block = 1024;

    void step(size_t m, size_t k, const float *x, const int32_t *ids, const float *weights, float *y,
              void *scratch) const
    {
        struct experts_run run;
        size_t threads = static_cast<size_t>(tbb::this_task_arena::max_concurrency());
        auto experts = settings.experts;
        OPENVINO_ASSERT(experts_begin(&run, experts, m, k, x, ids, weights, y, scratch, threads) == 0,
                        "GgufExperts: an id is not below ", experts->n);
        for (int p = 0; p < EXPERTS_N_PHASES; p++) {
            auto phase = static_cast<enum experts_phase>(p);
            size_t n = experts_pieces(&run, phase), grain = experts_grain(phase);
            if (n <= grain) {
                experts_do(&run, phase, 0, n);
                continue;
            }
            tbb::parallel_for(
                tbb::blocked_range<size_t>(0, n, grain),
                [&](const tbb::blocked_range<size_t> &r) { experts_do(&run, phase, r.begin(), r.end()); },
                tbb::simple_partitioner());
        }
    }
};

} // namespace

int ov_experts_op_register(struct ov_core *core)
{
    return register_op<GgufExperts>(core);
}

void ov_experts_table_use(const struct experts *experts, size_t n)
{
    table = {experts, n};
}
