// Command sidebyside measures ringside beside twemproxy, in front of the same three redis-servers, and says which of the figures that
// docs/PERFORMANCE.md promises are reached. `make bench` runs it.
//
// Two proxies are never compared by two runs: what is compared takes turns, round by round, so that whatever else the machine does hits
// both. A figure is the median of the rounds' ratios, printed with the lowest and the highest one. Processor time is that of the proxy
// process alone.
//
// Everything runs on 127.0.0.1 and is stopped, each process by its id, when the program ends. It speaks to the proxies over the wire only
// and imports nothing of what serves, so that it cannot share a mistake with it and can measure any build: see --ringside and --before.
package main
