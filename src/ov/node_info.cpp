// Runtime info of nodes, which the C API cannot reach. PagedAttention's CPU node wants its head counts and
// sizes under plain keys and as integers; IR can only carry them as text under "user_data…" (see
// ov/node_info.h).
#include "ov/node_info.h"

#include <openvino/core/model.hpp>
#include <openvino/core/node.hpp>

#include <string>

// The C wrapper's handle (openvino/c/src/common.h): a struct that holds the shared pointer.
struct ov_model {
    std::shared_ptr<ov::Model> object;
};

int ov_node_info_apply(struct ov_model *model)
{
    static const std::string prefix = "user_data";
    int marked = 0;
    try {
        for (const auto &op : model->object->get_ops()) {
            if (std::string(op->get_type_name()) != "PagedAttentionExtension")
                continue;
            auto &info = op->get_rt_info();
            std::vector<std::pair<std::string, size_t>> plain;
            for (const auto &[key, value] : info) {
                if (key.compare(0, prefix.size(), prefix) == 0)
                    plain.emplace_back(key.substr(prefix.size()), std::stoul(value.as<std::string>()));
            }
            for (const auto &[key, value] : plain)
                info[key] = value;
            marked++;
        }
    } catch (const std::exception &) {
        return -1;
    }
    return marked;
}
