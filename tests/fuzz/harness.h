/* What the drivers of a core under sanitizers share: PROGRAM SECONDS SEED BATCH-FILE...
 *
 * A driver includes the core first, then this, and gives `drive` what it does in one turn. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES_MAX = 256, BATCH_MAX = 1 << 16 };
static struct { uint8_t *bytes; size_t size; } corpus[BATCHES_MAX];
static int batches;
static uint64_t dice_state;

static uint64_t dice(uint64_t sides) {
    dice_state ^= dice_state << 13; dice_state ^= dice_state >> 7; dice_state ^= dice_state << 17;
    return sides ? (dice_state >> 11) % sides : 0;
}

static void fail(const char *what, uint64_t turn) {
    fprintf(stderr, "turn %llu: %s\n", (unsigned long long)turn, what);
    abort();
}

/* Bytes in memory of their exact size: an access one byte outside ends the run. */
static uint8_t *exact(const uint8_t *from, size_t size) {
    uint8_t *copied = malloc(size ? size : 1);
    if (size) memcpy(copied, from, size);
    return copied;
}

/* Ways to damage any bytes, whatever they mean; returns the new size, at most BATCH_MAX. */
enum { PLAIN_DAMAGES = 6 };
static size_t damage_plainly(uint8_t *b, size_t size, size_t at, uint64_t kind) {
    size_t more;
    switch (kind) {
    case 0: b[at] ^= (uint8_t)(1u << dice(8)); break;
    case 1: b[at] = (uint8_t)dice(256); break;
    case 2: for (more = dice(11); more && at < size; more--) b[at++] = 0xFF; break;
    case 3: size = at; break;
    case 4: more = dice(40); if (size + more < BATCH_MAX) { memmove(b + at + more, b + at, size - at); size += more; } break;
    case 5: more = dice(40); if (at + more < size) { memmove(b + at, b + at + more, size - at - more); size -= more; } break;
    }
    return size;
}

static int read_corpus(int count, char **names, uint8_t *room) {
    for (int i = 0; i < count && batches < BATCHES_MAX; i++) {
        FILE *file = fopen(names[i], "rb");
        if (!file) return perror(names[i]), 0;
        corpus[batches].size = fread(room, 1, BATCH_MAX - 1, file);
        corpus[batches].bytes = exact(room, corpus[batches].size);
        batches++;
        fclose(file);
    }
    return 1;
}

/* Takes turns for so many seconds; `one` says whether what it tried was good; `room` is at least BATCH_MAX bytes. */
static int drive(int count, char **words, uint8_t *room, int (*one)(uint64_t turn, uint8_t *room)) {
    if (count < 4) return fprintf(stderr, "usage: %s SECONDS SEED BATCH-FILE...\n", words[0]), 2;
    if (!read_corpus(count - 3, words + 3, room)) return 2;
    dice_state = strtoull(words[2], NULL, 10) * 2654435769u + 1;
    const double seconds = atof(words[1]);
    const time_t start = time(NULL);
    uint64_t turn = 0, good = 0;
    for (; turn % 1024 || difftime(time(NULL), start) < seconds; turn++) good += (uint64_t)one(turn, room);
    printf("%llu turns, %llu of them good, what the others tried was refused\n", (unsigned long long)turn, (unsigned long long)good);
    for (int i = 0; i < batches; i++) free(corpus[i].bytes);
    return 0;
}
