/* A worker of the PING/PONG dialogue in C on libzmq, written from its specification alone.
 *
 *     cc -o plain_worker plain_worker.c -lzmq
 *     ./plain_worker tcp://127.0.0.1:7701 [PERIOD_MS [NAME]]
 *
 * What a job is made of is between the worker and whoever submits it. Here:
 *
 *     say TEXT               the result is TEXT
 *     hold STARTED UNTIL     notes its process id in file STARTED, ends once file UNTIL is there
 *     anything else          the result is the same in capitals
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum { N_TIMEOUTS = 3 };

static void *context;
static const char *address, *name = "";
static long period_ms = 1000;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(1);
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void say(void *frontend, const void *data, size_t size)
{
    if (zmq_send(frontend, "", 0, ZMQ_SNDMORE) < 0 || zmq_send(frontend, data, size, 0) < 0)
        fail("send");
}

static void *open_frontend(void)
{
    void *frontend = zmq_socket(context, ZMQ_DEALER);
    int linger = 0;
    zmq_setsockopt(frontend, ZMQ_LINGER, &linger, sizeof linger);
    if (*name)
        zmq_setsockopt(frontend, ZMQ_IDENTITY, name, strlen(name));
    if (zmq_connect(frontend, address))
        fail(address);
    say(frontend, "READY", 5);
    return frontend;
}

static void hold(const char *started, const char *until)
{
    struct timespec pause = {0, 10 * 1000 * 1000};
    FILE *file = fopen(started, "a");
    if (!file)
        fail(started);
    fprintf(file, "%ld\n", (long)getpid());
    fclose(file);
    while (access(until, F_OK))
        nanosleep(&pause, NULL);
}

/* Works on a job and sends its result. The job's bytes end with a zero that is not part of it. */
static void work(void *frontend, char *job, size_t size)
{
    if (!strncmp(job, "say ", 4)) {
        say(frontend, job + 4, size - 4);
    } else if (!strncmp(job, "hold ", 5)) {
        char *started = strtok(job + 5, " "), *until = strtok(NULL, " ");
        hold(started, until);
        say(frontend, "held", 4);
    } else {
        for (size_t i = 0; i < size; i++)
            job[i] = (char)toupper((unsigned char)job[i]);
        say(frontend, job, size);
    }
}

static void receive(void *frontend)
{
    zmq_msg_t delimiter, message;
    zmq_msg_init(&delimiter);
    zmq_msg_init(&message);
    if (zmq_msg_recv(&delimiter, frontend, 0) < 0 || zmq_msg_recv(&message, frontend, 0) < 0)
        fail("receive");
    size_t size = zmq_msg_size(&message);
    char *data = calloc(size + 1, 1);
    memcpy(data, zmq_msg_data(&message), size);
    zmq_msg_close(&delimiter);
    zmq_msg_close(&message);
    if (size != 4 || memcmp(data, "PONG", 4))
        work(frontend, data, size);
    free(data);
}

int main(int count, char **words)
{
    if (count < 2)
        return 2;
    address = words[1];
    period_ms = count > 2 ? atol(words[2]) : period_ms;
    name = count > 3 ? words[3] : name;
    context = zmq_ctx_new();
    void *frontend = open_frontend();
    int silent = 0;
    for (long ping_at = now_ms();;) {
        zmq_pollitem_t item = {frontend, 0, ZMQ_POLLIN, 0};
        if (now_ms() >= ping_at) {
            say(frontend, "PING", 4);
            ping_at = now_ms() + period_ms;
        }
        if (zmq_poll(&item, 1, period_ms) > 0) {
            receive(frontend);
            silent = 0;
        } else if (++silent == N_TIMEOUTS) {
            fprintf(stderr, "reconnecting\n");
            zmq_close(frontend);
            frontend = open_frontend();
            silent = 0;
        }
    }
}
