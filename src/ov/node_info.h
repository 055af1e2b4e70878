/* Copies the "user_data" runtime info of paged attention nodes to the keys that the plugins read. */
#ifndef OV_NODE_INFO_H
#define OV_NODE_INFO_H

#ifdef __cplusplus
extern "C" {
#endif

struct ov_model;

/* Returns how many nodes were found, -1 when a value is not a number. */
int ov_node_info_apply(struct ov_model *model);

#ifdef __cplusplus
}
#endif

#endif
