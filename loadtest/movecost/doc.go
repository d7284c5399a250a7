// Command movecost measures what a move of half of the vnodes between two shards costs whoever reads and writes meanwhile, and says whether that is no more than
// docs/RESHARDING.md gives. `make bench` runs it.
//
// In each round the same load is put on the same cluster twice: from the beginning of a move to its end, and for as long again with nothing else going on. A figure is the median of the rounds'
// ratios, printed with the lowest and the highest one. Latency is counted as in `ringside loadtest`: from when a request was due, all seconds of the move together.
// Every value that is read is checked. The shards write their logs to the disk as in production.
//
// Everything runs on 127.0.0.1 and is stopped, each process by its id, when the program ends.
package main
