/* Runs a fuzz target over files and folders of files: the corpus as a plain test. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return -1;
    }
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    uint8_t *data =
        malloc(n > 0 ? (size_t)n : 1); /* exact size, so that a sanitizer sees a read past the end */
    size_t got = data ? fread(data, 1, (size_t)n, f) : 0;
    fclose(f);
    if (data)
        LLVMFuzzerTestOneInput(data, got);
    free(data);
    return 1;
}

static int run(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        return -1;
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(path);
    DIR *dir = opendir(path);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char sub[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        int r = run(sub);
        if (r < 0) {
            n = -1;
            break;
        }
        n += r;
    }
    if (dir)
        closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = run(argv[i]);
        if (n < 0)
            return 1;
        total += n;
    }
    printf("%d inputs\n", total);
    return total == 0; /* an empty corpus is a mistake */
}
