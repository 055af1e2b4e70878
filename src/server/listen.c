/* One socket for each --host. */
#include "server/listen.h"

#include "server/http.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 511 };

static bool is_path(const char *host)
{
    size_t n = strlen(host);
    return n > 5 && strcmp(host + n - 5, ".sock") == 0;
}

/* A socket file that nobody listens on is what a server before us left behind. */
static void remove_stale(const struct sockaddr_un *a)
{
    struct stat st;
    if (stat(a->sun_path, &st) || !S_ISSOCK(st.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) && errno == ECONNREFUSED)
        unlink(a->sun_path);
    if (fd >= 0)
        close(fd);
}

static int listen_path(const char *path, struct grappa_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return fail(err, 400, "%s: the path is too long for a socket", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    remove_stale(&a);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, BACKLOG)) {
        fail(err, 500, "can't listen on %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    log_at(LOG_INFO, "listening on %s", path);
    return fd;
}

static int open_address(const struct addrinfo *a, bool reuse_port, bool several)
{
    int one = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (reuse_port)
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (a->ai_family == AF_INET6 && several)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char port[8] = "";
    if (getsockname(fd, (struct sockaddr *)&a, &n) ||
        getnameinfo((struct sockaddr *)&a, n, NULL, 0, port, sizeof port, NI_NUMERICSERV))
        return 0;
    return (uint16_t)strtoul(port, NULL, 10);
}

int listen_on(const char *host, uint16_t port, bool reuse_port, bool several, bool tls,
              struct grappa_err *err)
{
    if (is_path(host))
        return listen_path(host, err);
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int status = getaddrinfo(host, service, &want, &list);
    if (status)
        return fail(err, 500, "--host %s: %s", host, gai_strerror(status));
    int fd = -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = open_address(a, reuse_port, several);
    int why = errno;
    freeaddrinfo(list);
    if (fd < 0)
        return fail(err, 500, "can't listen on %s port %u: %s", host, port, strerror(why));
    log_at(LOG_INFO, "listening on %s://%s%s%s:%u", tls ? "https" : "http", strchr(host, ':') ? "[" : "",
           host, strchr(host, ':') ? "]" : "", port_of(fd));
    return fd;
}
