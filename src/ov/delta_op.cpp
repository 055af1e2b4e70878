// The operation "DeltaNet": convolution, gated delta rule, norm and gate in one. The work and its division
// are in kernels/delta.h, the threads are the plugin's own pool. See ov/delta_op.h.
#include "ov/delta_op.h"

#include "kernels/delta.h"
#include "ov/own_op.hpp"

#include <tbb/parallel_for.h>

namespace {

enum Input {
    QKV,
    Z,
    ALPHA,
    BETA,
    CONV,
    CONV_BIAS,
    DT,
    A,
    NORM,
    CONV_STATES,
    STATES,
    BEGINS,
    SLOTS,
    SLOT_BEGINS,
    PAST,
    INTERVAL,
    N_INPUTS
};

struct DeltaSettings {
    int64_t key_heads = 0, heads = 0;
    bool tiled = false;
    double norm_eps = 0;

    void visit(ov::AttributeVisitor &v)
    {
        v.on_attribute("key_heads", key_heads);
        v.on_attribute("heads", heads);
        v.on_attribute("tiled", tiled);
        v.on_attribute("norm_eps", norm_eps);
    }
};

class DeltaNet : public OwnOp<DeltaNet, DeltaSettings> {
  public:
    OPENVINO_OP("DeltaNet", "grappa");
    DeltaNet() = default;

    void validate_and_infer_types() override
    {
        OPENVINO_ASSERT(get_input_size() == N_INPUTS, "DeltaNet has ", N_INPUTS, " inputs");
        auto z = get_input_partial_shape(Z);
        OPENVINO_ASSERT(z.rank() == 2 && get_input_partial_shape(STATES).rank() == 4 &&
                            get_input_partial_shape(CONV_STATES).rank() == 3,
                        "DeltaNet: an input has another rank");
        set_output_type(0, ov::element::f32, {get_input_partial_shape(QKV)[0], z[1]});
    }

    bool evaluate(ov::TensorVector &out, const ov::TensorVector &in) const override
    {
        struct delta d = layer(in);
        OPENVINO_ASSERT(delta_supports(&d), "DeltaNet: heads of these sizes can't be computed");
        out[0].set_shape(in[Z].get_shape());
        struct delta_step s = step(d, out, in);
        size_t n = delta_pieces(&d, &s), scratch_size = delta_scratch_size(&d);
        auto threads = static_cast<size_t>(tbb::this_task_arena::max_concurrency());
        size_t pieces = in[QKV].get_shape()[0] < 4 ? threads : 4 * threads;
        tbb::parallel_for(
            tbb::blocked_range<size_t>(0, n, (n + pieces - 1) / pieces),
            [&](const tbb::blocked_range<size_t> &r) {
                thread_local Scratch scratch;
                delta_do(&d, &s, r.begin(), r.end(), scratch.get(scratch_size));
            },
            tbb::simple_partitioner());
        return true;
    }

  private:
    static const float *f32(const ov::Tensor &t)
    {
        return t.data<const float>();
    }

    // States belong to the caller, who has them written in place.
    static float *table(const ov::Tensor &t)
    {
        return const_cast<float *>(f32(t));
    }

    struct delta layer(const ov::TensorVector &in) const
    {
        struct delta d = {};
        auto states = in[STATES].get_shape(), conv = in[CONV].get_shape();
        d.key_heads = static_cast<uint32_t>(settings.key_heads);
        d.heads = static_cast<uint32_t>(settings.heads);
        d.value = static_cast<uint32_t>(states[2]);
        d.key = static_cast<uint32_t>(states[3]);
        d.taps = static_cast<uint32_t>(conv[0]);
        d.tiled = settings.tiled;
        d.norm_eps = static_cast<float>(settings.norm_eps);
        d.conv = f32(in[CONV]);
        d.conv_bias = in[CONV_BIAS].get_size() ? f32(in[CONV_BIAS]) : nullptr;
        d.dt = f32(in[DT]);
        d.a = f32(in[A]);
        d.norm = f32(in[NORM]);
        size_t channels = conv[1];
        OPENVINO_ASSERT(
            states[1] == d.heads && channels == 2 * d.key_heads * states[3] + d.heads * states[2] &&
                in[QKV].get_shape()[1] == channels && in[CONV_STATES].get_shape()[2] == channels &&
                in[CONV_STATES].get_shape()[1] + 1 == d.taps && in[DT].get_size() == d.heads &&
                in[A].get_size() == d.heads && in[NORM].get_size() == d.value &&
                in[Z].get_shape()[1] == d.heads * states[2],
            "DeltaNet: sizes of its inputs don't go together");
        return d;
    }

    struct delta_step step(const struct delta &d, ov::TensorVector &out, const ov::TensorVector &in) const
    {
        struct delta_step s = {};
        s.n_seqs = in[BEGINS].get_size() - 1;
        s.qkv = f32(in[QKV]);
        s.z = f32(in[Z]);
        s.alpha = f32(in[ALPHA]);
        s.beta = f32(in[BETA]);
        s.y = out[0].data<float>();
        s.conv_states = table(in[CONV_STATES]);
        s.states = table(in[STATES]);
        s.begins = in[BEGINS].data<const int32_t>();
        s.slots = in[SLOTS].data<const int32_t>();
        s.slot_begins = in[SLOT_BEGINS].data<const int32_t>();
        s.past = in[PAST].data<const int32_t>();
        s.interval = in[INTERVAL].data<const int32_t>();
        check(d, s, in);
        return s;
    }

    static void check(const struct delta &d, const struct delta_step &s, const ov::TensorVector &in)
    {
        size_t n_rows = in[QKV].get_shape()[0];
        auto rows = static_cast<int64_t>(n_rows);
        auto n_slots = static_cast<int64_t>(in[SLOTS].get_size());
        auto n_states = static_cast<int64_t>(in[STATES].get_shape()[0]);
        bool right = in[SLOT_BEGINS].get_size() == s.n_seqs + 1 && in[PAST].get_size() == s.n_seqs &&
                     in[INTERVAL].get_size() == s.n_seqs && in[ALPHA].get_size() == n_rows * d.heads &&
                     in[BETA].get_size() == n_rows * d.heads && s.begins[0] == 0 &&
                     s.begins[s.n_seqs] == rows && s.slot_begins[0] >= 0 &&
                     s.slot_begins[s.n_seqs] <= n_slots &&
                     static_cast<int64_t>(in[CONV_STATES].get_shape()[0]) == n_states;
        for (size_t i = 0; right && i < s.n_seqs; i++)
            right = s.begins[i] <= s.begins[i + 1] && s.slot_begins[i] + 2 <= s.slot_begins[i + 1] &&
                    s.past[i] >= 0;
        for (int64_t i = 0; right && i < n_slots; i++)
            right = s.slots[i] >= 0 && s.slots[i] < n_states;
        OPENVINO_ASSERT(right, "DeltaNet: rows or slots of a sequence are not among those there are");
    }
};

} // namespace

int ov_delta_op_register(struct ov_core *core)
{
    return register_op<DeltaNet>(core);
}
