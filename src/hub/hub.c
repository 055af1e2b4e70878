/* What is asked for, which files that is, where they lie. */
#include "hub/hub.h"

#include "hub/fetch.h"

#include "base/log.h"
#include "base/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LISTING = 32 << 20, MAX_FILES = 1 << 16 };

struct listing {
    const struct hub_params *p;
    char repo[256], quant[64];
    char root[PATH_MAX]; /* of the repository in the cache */
    char commit[41];
    json_t *tree; /* of the Hub; or NULL: only the cache is known */
};

/* ---- names ---- */

/* Letters, digits and _ with single / . - between them, one of them a slash. */
static bool good_repo(const char *s)
{
    int slashes = 0;
    bool between = true;
    for (; *s; s++) {
        if (isalnum((unsigned char)*s) || *s == '_') {
            between = false;
        } else if (strchr("/.-", *s) && !between) {
            slashes += *s == '/';
            between = true;
        } else {
            return false;
        }
    }
    return !between && slashes == 1;
}

static bool is_hex(const char *s, size_t n)
{
    return s && strlen(s) == n && strspn(s, "0123456789abcdefABCDEF") == n;
}

bool hub_safe_path(const char *name)
{
    if (!*name || *name == '/' || strlen(name) > 512)
        return false;
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.') || p[n - 1] == '\\')
            return false;
        p += n + (p[n] == '/');
    }
    return true;
}

static int split_name(struct listing *l, struct err *err)
{
    const char *colon = strchr(l->p->repo, ':');
    size_t n = colon ? (size_t)(colon - l->p->repo) : strlen(l->p->repo);
    if (n >= sizeof l->repo || (colon && strlen(colon + 1) >= sizeof l->quant))
        return err_set(err, ERR_USAGE, "-hf %s: too long", l->p->repo);
    snprintf(l->repo, sizeof l->repo, "%.*s", (int)n, l->p->repo);
    snprintf(l->quant, sizeof l->quant, "%s", colon ? colon + 1 : "");
    if (!good_repo(l->repo))
        return err_set(err, ERR_USAGE, "-hf %s: must be USER/NAME or USER/NAME:QUANT", l->p->repo);
    return 0;
}

/* The folder that huggingface_hub and llama.cpp would take; the first variable that is set counts. */
static int cache_folder(const struct hub_params *p, char out[PATH_MAX], struct err *err)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"LLAMA_CACHE", ""},
                  {"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    int n = p->cache ? snprintf(out, PATH_MAX, "%s", p->cache) : 0;
    for (size_t i = 0; i < sizeof places / sizeof *places && n == 0; i++) {
        const char *base = getenv(places[i].variable);
        if (base && *base)
            n = snprintf(out, PATH_MAX, "%s%s", base, places[i].below);
    }
    if (n <= 0 || n > PATH_MAX / 2)
        return err_set(err, ERR_USAGE, "no folder for models: set LLAMA_CACHE");
    return 0;
}

/* ---- which file ---- */

static bool is_model(const char *name)
{
    size_t n = strlen(name);
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    return n > 5 && strcasecmp(name + n - 5, ".gguf") == 0 && strncasecmp(base, "mmproj", 6) != 0 &&
           strncasecmp(base, "mtp-", 4) != 0 && strncasecmp(base, "imatrix", 7) != 0;
}

/* "…-00002-of-00003.gguf": a later part. */
static bool is_later_part(const char *name)
{
    const char *of = strstr(name, "-of-");
    return of && of - name >= 6 && of[-6] == '-' && strspn(of - 5, "0123456789") == 5 &&
           strncmp(of - 5, "00001", 5) != 0;
}

/* The quantisation stands between - . or / and the end, a part's number or the suffix. */
static bool has_quant(const char *name, const char *quant)
{
    size_t n = strlen(quant);
    for (const char *p = name; (p = strcasestr(p, quant)); p++) {
        bool starts = p == name || strchr("-./", p[-1]) != NULL;
        if (starts && (p[n] == '.' || p[n] == '/' || (p[n] == '-' && isdigit((unsigned char)p[n + 1]))))
            return true;
    }
    return false;
}

int hub_choose(const char *const *names, size_t n, const char *quant)
{
    const char *const wanted[] = {quant && *quant ? quant : "Q4_K_M", quant && *quant ? NULL : "Q4_0"};
    int first = -1;
    for (size_t w = 0; w < 2 && wanted[w]; w++) {
        for (size_t i = 0; i < n; i++) {
            if (!is_model(names[i]) || is_later_part(names[i]))
                continue;
            first = first < 0 ? (int)i : first;
            if (has_quant(names[i], wanted[w]))
                return (int)i;
        }
    }
    return quant && *quant ? -1 : first;
}

/* ---- what the Hub says ---- */

static json_t *ask(const struct listing *l, const char *what, struct err *err)
{
    struct buf url = {0}, body = {.ceiling = MAX_LISTING};
    const char *end = l->p->endpoint && *l->p->endpoint ? l->p->endpoint : "https://huggingface.co";
    buf_printf(&url, "%s%sapi/models/%s/%s", end, end[strlen(end) - 1] == '/' ? "" : "/", l->repo, what);
    json_error_t where;
    json_t *j = NULL;
    if (fetch_text(url.p, l->p->token, &body, err) == 0) {
        j = json_loadb(body.p ? body.p : "", body.n, 0, &where);
        if (!j)
            err_set(err, ERR_FORMAT, "%s: the answer is no JSON", url.p);
    }
    buf_release(&url);
    buf_release(&body);
    return j;
}

static int find_commit(struct listing *l, struct err *err)
{
    json_t *refs = ask(l, "refs", err), *branch;
    size_t i;
    if (!refs)
        return -1;
    json_array_foreach(json_object_get(refs, "branches"), i, branch)
    {
        const char *name = json_string_value(json_object_get(branch, "name"));
        const char *commit = json_string_value(json_object_get(branch, "targetCommit"));
        if (is_hex(commit, 40) && (!*l->commit || (name && strcmp(name, "main") == 0)))
            memcpy(l->commit, commit, 41);
    }
    json_decref(refs);
    return *l->commit ? 0 : err_set(err, ERR_FORMAT, "%s: the Hub names no version of it", l->repo);
}

static int read_tree(struct listing *l, struct err *err)
{
    char what[96];
    if (find_commit(l, err))
        return -1;
    snprintf(what, sizeof what, "tree/%s?recursive=true", l->commit);
    l->tree = ask(l, what, err);
    if (!l->tree)
        return -1;
    if (!json_is_array(l->tree) || json_array_size(l->tree) > MAX_FILES)
        return err_set(err, ERR_FORMAT, "%s: the Hub's list of files is none", l->repo);
    return 0;
}

/* ---- the cache ---- */

static int make_folders(char *path, struct err *err)
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        int status = mkdir(path, 0777);
        int why = errno;
        *p = '/';
        if (status && why != EEXIST)
            return err_set(err, ERR_IO, "%s: %s", path, strerror(why));
    }
    return 0;
}

static void remember_commit(const struct listing *l)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/refs/main", l->root) >= (int)sizeof path || make_folders(path, NULL))
        return;
    FILE *f = fopen(path, "w");
    if (f) {
        fputs(l->commit, f);
        fclose(f);
    }
}

static int recall_commit(struct listing *l, struct err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.3000s/refs/main", l->root);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(l->commit, 1, 40, f) : 0;
    if (f)
        fclose(f);
    l->commit[n] = '\0';
    return is_hex(l->commit, 40) ? 0 : err_set(err, ERR_IO, "%s is not in the cache", l->repo);
}

static int snapshot_path(const struct listing *l, const char *file, char out[PATH_MAX], struct err *err)
{
    return snprintf(out, PATH_MAX, "%s/snapshots/%s/%s", l->root, l->commit, file) < PATH_MAX
               ? 0
               : err_set(err, ERR_USAGE, "%s: the path is too long", file);
}

/* ---- fetching ---- */

struct remote_file {
    const char *path, *oid;
    uint64_t size;
};

static bool remote_file(const json_t *entry, struct remote_file *out)
{
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *type = json_string_value(json_object_get(entry, "type"));
    out->path = json_string_value(json_object_get(entry, "path"));
    out->oid = json_string_value(json_object_get(json_is_object(lfs) ? lfs : entry, "oid"));
    out->size = (uint64_t)json_integer_value(json_object_get(entry, "size"));
    return type && strcmp(type, "file") == 0 && out->path && hub_safe_path(out->path) &&
           (is_hex(out->oid, 64) || is_hex(out->oid, 40));
}

static int get_file(struct listing *l, const struct remote_file *f, struct err *err)
{
    char place[PATH_MAX], blob[PATH_MAX], target[160];
    struct stat st;
    struct buf url = {0};
    int status = -1;
    if (snapshot_path(l, f->path, place, err))
        return -1;
    if (stat(place, &st) == 0)
        return 0;
    if (snprintf(blob, sizeof blob, "%s/blobs/%s", l->root, f->oid) >= (int)sizeof blob)
        return err_set(err, ERR_USAGE, "%s: the path is too long", l->root);
    const char *end = l->p->endpoint && *l->p->endpoint ? l->p->endpoint : "https://huggingface.co";
    buf_printf(&url, "%s%s%s/resolve/%s/%s", end, end[strlen(end) - 1] == '/' ? "" : "/", l->repo, l->commit,
               f->path);
    struct fetch_params q = {.url = url.p,
                             .token = l->p->token,
                             .path = blob,
                             .name = f->path,
                             .oid = f->oid,
                             .size = f->size,
                             .progress = l->p->progress,
                             .user = l->p->user};
    if (make_folders(blob, err) || (stat(blob, &st) && fetch_file(&q, err)) || make_folders(place, err))
        goto cleanup;
    /* The snapshot's name leads to the blob: one step up for each folder, and two for snapshots/COMMIT. */
    int up = 2;
    for (const char *p = f->path; (p = strchr(p, '/')); p++)
        up++;
    size_t n = 0;
    for (int i = 0; i < up && n + 3 < sizeof target; i++)
        n += (size_t)snprintf(target + n, sizeof target - n, "../");
    snprintf(target + n, sizeof target - n, "blobs/%s", f->oid);
    if (symlink(target, place) && errno != EEXIST && rename(blob, place)) {
        err_set(err, ERR_IO, "%s: %s", place, strerror(errno));
        goto cleanup;
    }
    status = 0;
cleanup:
    buf_release(&url);
    return status;
}

/* All parts of a split file, or the one. */
static int get_parts(struct listing *l, const char *chosen, struct err *err)
{
    const char *of = strstr(chosen, "-00001-of-");
    size_t head = of ? (size_t)(of - chosen) : strlen(chosen), i;
    json_t *entry;
    json_array_foreach(l->tree, i, entry)
    {
        struct remote_file f;
        if (!remote_file(entry, &f))
            continue;
        bool same = strcmp(f.path, chosen) == 0;
        bool part = of && strncmp(f.path, chosen, head) == 0 && strlen(f.path) == strlen(chosen) &&
                    strcmp(f.path + head + 6, of + 6) == 0;
        if ((same || part) && get_file(l, &f, err))
            return -1;
    }
    return 0;
}

static int get_from_hub(struct listing *l, struct buf *path, struct err *err)
{
    const char **names = xcalloc(json_array_size(l->tree) + 1, sizeof *names);
    size_t n = 0, i;
    json_t *entry;
    char place[PATH_MAX];
    int chosen = -1;
    json_array_foreach(l->tree, i, entry)
    {
        struct remote_file f;
        if (remote_file(entry, &f))
            names[n++] = f.path;
    }
    if (l->p->file) {
        for (i = 0; i < n; i++)
            chosen = strcmp(names[i], l->p->file) == 0 ? (int)i : chosen;
    } else {
        chosen = hub_choose(names, n, l->quant);
    }
    const char *name = chosen < 0 ? NULL : names[chosen];
    free(names);
    if (!name)
        return err_set(err, ERR_USAGE, "%s has no %s", l->repo,
                       l->p->file  ? l->p->file
                       : *l->quant ? l->quant
                                   : "GGUF file");
    if (get_parts(l, name, err) || snapshot_path(l, name, place, err))
        return -1;
    remember_commit(l);
    buf_puts(path, place);
    return 0;
}

/* ---- only the cache ---- */

struct names {
    char **v;
    size_t n;
};

static void list_folder(struct names *names, const char *root, const char *below, int depth)
{
    char path[PATH_MAX], name[PATH_MAX];
    snprintf(path, sizeof path, "%.2000s/%.2000s", root, below);
    DIR *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d)) && names->n < MAX_FILES) {
        struct stat st;
        if (e->d_name[0] == '.' ||
            snprintf(name, sizeof name, "%s%s%s", below, *below ? "/" : "", e->d_name) >= (int)sizeof name ||
            snprintf(path, sizeof path, "%.2000s/%.2000s", root, name) >= (int)sizeof path || stat(path, &st))
            continue;
        if (S_ISDIR(st.st_mode) && depth < 4) {
            list_folder(names, root, name, depth + 1);
        } else if (S_ISREG(st.st_mode)) {
            names->v = xrealloc(names->v, (names->n + 1) * sizeof *names->v);
            names->v[names->n++] = xstrdup(name);
        }
    }
    if (d)
        closedir(d);
}

static int get_from_cache(struct listing *l, struct buf *path, struct err *err)
{
    struct names names = {0};
    char root[PATH_MAX];
    int chosen = -1;
    if (recall_commit(l, err))
        return -1;
    snprintf(root, sizeof root, "%.3000s/snapshots/%s", l->root, l->commit);
    list_folder(&names, root, "", 0);
    if (l->p->file) {
        for (size_t i = 0; i < names.n; i++)
            chosen = strcmp(names.v[i], l->p->file) == 0 ? (int)i : chosen;
    } else if (names.n) {
        chosen = hub_choose((const char *const *)names.v, names.n, l->quant);
    }
    if (chosen >= 0 && names.v)
        buf_printf(path, "%s/%s", root, names.v[chosen]);
    else
        err_set(err, ERR_IO, "%s%s%s is not in the cache", l->repo, *l->quant ? ":" : "", l->quant);
    for (size_t i = 0; i < names.n; i++)
        free(names.v[i]);
    free(names.v);
    return chosen < 0 ? -1 : 0;
}

int hub_get(const struct hub_params *p, struct buf *path, struct err *err)
{
    struct listing l = {.p = p};
    char cache[PATH_MAX];
    struct err e = ERR_INIT;
    if (split_name(&l, err) || cache_folder(p, cache, err))
        return -1;
    size_t n = (size_t)snprintf(l.root, sizeof l.root, "%s/models--%s", cache, l.repo);
    char *slash = strchr(l.root + strlen(cache) + 1, '/');
    if (slash && n + 1 < sizeof l.root) { /* a slash of the name is "--" */
        memmove(slash + 2, slash + 1, strlen(slash + 1) + 1);
        slash[0] = slash[1] = '-';
    }
    if (p->offline)
        return get_from_cache(&l, path, err);
    int status = read_tree(&l, &e);
    if (status == 0) {
        status = get_from_hub(&l, path, err);
    } else if (get_from_cache(&l, path, NULL) == 0) {
        log_warn("%s; going on with what is in the cache", e.text);
        status = 0;
    } else {
        err_set(err, e.code, "%s", e.text);
    }
    json_decref(l.tree);
    return status;
}
