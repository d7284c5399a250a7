// Package twemproxy runs a real twemproxy (nutcracker) on 127.0.0.1 in front of Redis servers, for programs that measure ringside beside it.
package twemproxy
