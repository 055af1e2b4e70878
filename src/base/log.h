/* Messages for people, on stderr or in a file; text that is the program's result never goes through here. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Shown are messages up to `level`; LOG_WARN at the start. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);
/* Writes to `path` as well; -1 with errno when it can't be opened. */
int log_set_file(const char *path);
/* One line; the newline is added. Thread-safe: a line is written in one piece. */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
