/* Log lines: one level, stderr and an optional file. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int shown = LOG_WARN;
static FILE *file;

void log_set_level(enum log_level level)
{
    __atomic_store_n(&shown, (int)level, __ATOMIC_RELAXED);
}

enum log_level log_get_level(void)
{
    return (enum log_level)__atomic_load_n(&shown, __ATOMIC_RELAXED);
}

int log_set_file(const char *path)
{
    FILE *f = fopen(path, "a");
    if (!f)
        return -1;
    pthread_mutex_lock(&lock);
    if (file)
        fclose(file);
    file = f;
    pthread_mutex_unlock(&lock);
    return 0;
}

void log_at(enum log_level level, const char *fmt, ...)
{
    if (level > log_get_level())
        return;
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    const char *mark = level == LOG_ERROR ? "grappa: " : level == LOG_WARN ? "grappa: warning: " : "";
    pthread_mutex_lock(&lock);
    fprintf(stderr, "%s%s\n", mark, line);
    if (file) {
        fprintf(file, "%s%s\n", mark, line);
        fflush(file);
    }
    pthread_mutex_unlock(&lock);
}
