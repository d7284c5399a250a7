// Command rowcost measures what rows cost through ringside, beside PostgreSQL alone, and says which of the figures that docs/COHERENCE.md
// gives are reached. `make bench` runs it.
//
// What is compared takes turns, round by round, on the same shard: a figure is the median of the rounds' ratios, printed with the lowest and the
// highest one. What is counted is counted by the shard itself, by pg_stat_statements. The shard writes its log to the disk as in production
// (fsync), since that is most of what a write takes.
//
// Everything runs on 127.0.0.1 and is stopped, each process by its id, when the program ends. Sidecars are asked over the wire only.
package main
