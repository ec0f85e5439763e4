/* Writes a thousand events into a stream, and prints the files. Usage: produce HOST:PORT[,HOST:PORT] LFN */
#include <exacat_writer.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, exw_message());
    return 1;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: produce HOST:PORT[,HOST:PORT] LFN\n");
        return 2;
    }
    exw_options *options = NULL;
    exw_writer *writer = NULL;
    exw_stream *stream = NULL;
    exw_outcomes *outcomes = NULL;

    if (exw_options_new(&options) || exw_options_set(options, "seeds", arguments[1]) ||
        exw_options_set(options, "plain", "yes") || exw_options_set(options, "name", "produce") ||
        exw_options_set(options, "memory_bytes", "33554432") || exw_connect(options, &writer))
        return fail("connect");
    exw_options_free(options);

    if (exw_options_new(&options) || exw_options_set(options, "run", "1042") ||
        exw_options_set(options, "stream", "physics") || exw_options_set(options, "lfn", arguments[2]) ||
        exw_options_set(options, "tag.detector", "muon") ||
        exw_options_set(options, "file_events_max", "400") || exw_open_stream(writer, options, &stream))
        return fail("open a stream");
    exw_options_free(options);

    char event[100];
    for (int number = 0; number < 1000; number++) {
        memset(event, number % 256, sizeof event);
        if (exw_append(stream, event, sizeof event))
            return fail("append");
    }
    if (exw_flush(stream))
        return fail("flush");
    if (exw_close_stream(stream, &outcomes))
        return fail("close");
    for (size_t index = 0; index < exw_outcomes_count(outcomes); index++) {
        exw_outcome of;
        if (exw_outcomes_get(outcomes, index, &of))
            return fail("outcome");
        printf("%s %d %llu events %llu bytes %08x %s\n", of.lfn, of.state, (unsigned long long)of.events,
               (unsigned long long)of.bytes, of.adler32, of.reason);
    }
    exw_outcomes_free(outcomes);
    exw_counts counts;
    if (exw_get_counts(writer, &counts))
        return fail("counts");
    printf("%llu of %llu events are durable\n", (unsigned long long)counts.settled_events,
           (unsigned long long)counts.appended_events);
    if (exw_close(writer, NULL))
        return fail("close the writer");

    /* Mistakes are codes, not crashes. */
    if (exw_append(NULL, event, sizeof event) != EXW_ARGUMENT || exw_connect(NULL, &writer) != EXW_ARGUMENT)
        return 1;
    printf("%s\n", exw_message());
    return 0;
}
