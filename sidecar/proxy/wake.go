package proxy

// Wake has every loop act by the present topology, also those on which nothing happens: until their connections say so, the cache servers must
// take them for users of the former one. Any goroutine; it does not wait.
func (s *Server) Wake() {
	for _, w := range s.workers {
		w.loop.Submit(w.turn)
	}
}
