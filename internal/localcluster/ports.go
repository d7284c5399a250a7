package localcluster

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreeBase finds a base from which every port of a cluster is free, and those of four more sidecars, for tests. The range is below the one of outgoing
// connections and away from the demo's ports. Until the cluster has them somebody else may take them.
func FreeBase(o Options) (int, error) {
	for range 50 {
		base := 9000 + 500*rand.IntN(12)
		if blockIsFree(base, o) {
			return base, nil
		}
	}
	return 0, errors.New("no free block of ports between 9000 and 15000")
}

func blockIsFree(base int, o Options) bool {
	ports := []int{base + 350}
	for i := 1; i <= o.Sidecars+4; i++ {
		ports = append(ports, base+i, base+100+i, base+200+i)
	}
	for i := 1; i <= o.Caches; i++ {
		ports = append(ports, base+300+i)
	}
	for i := 1; i <= o.Shards; i++ {
		ports = append(ports, base+400+i)
	}
	for _, p := range ports {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(p))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return false
		}
		_ = l.Close() // only looked whether it can be had
		u, err := net.ListenPacket("udp", addr)
		if err != nil {
			return false
		}
		_ = u.Close()
	}
	return true
}
