/* grappa devices, grappa version: what is there to run on, and what runs. */
#include "cli/common.h"

int cmd_devices(const struct options *o)
{
    (void)o;
    enum { MOST = 64 };
    struct grappa_device devices[MOST];
    struct grappa_err err = {0};
    int n = grappa_devices(devices, MOST, &err);
    if (n < 0)
        return cli_fail(&err);
    for (int i = 0; i < n && i < MOST; i++)
        printf("%-8s %s\n", devices[i].name, devices[i].full_name);
    return 0;
}

int cmd_version(const struct options *o)
{
    (void)o;
    printf("grappa %s\nOpenVINO %s\n", GRAPPA_VERSION, grappa_openvino_version());
    return 0;
}
