package proxy

// live is the configuration, in which what SetLimits changes is as it is now. Any goroutine; nobody changes what it points to.
func (s *Server) live() *Config { return s.current.Load() }

// SetLimits takes over what can be changed while the server runs, from clients that are connected too: Limits, MaxClients, InFlight, OutputSoft, OutputHard, RowOps,
// ClientIdle, UpstreamIdle, UpstreamCalls, PrivateUpstreams, ConnectTimeout, ReplyTimeout, SweepTimeout, SlowFrom and SlowLines. Nobody is disconnected for it: a client that is beyond
// a lower limit is so when it next asks for something. After an error nothing has changed. Any goroutine but those of the loops; one call at a time.
func (s *Server) SetLimits(c Config) error {
	next := *s.live()
	next.Limits, next.MaxClients, next.InFlight, next.RowOps = c.Limits, c.MaxClients, c.InFlight, c.RowOps
	next.OutputSoft, next.OutputHard = c.OutputSoft, c.OutputHard
	next.ClientIdle, next.UpstreamIdle = c.ClientIdle, c.UpstreamIdle
	next.UpstreamCalls, next.PrivateUpstreams = c.UpstreamCalls, c.PrivateUpstreams
	next.ConnectTimeout, next.ReplyTimeout, next.SweepTimeout, next.SlowFrom = c.ConnectTimeout, c.ReplyTimeout, c.SweepTimeout, c.SlowFrom
	next.SlowLines = c.SlowLines
	if err := next.Validate(); err != nil {
		return err
	}
	s.current.Store(&next)
	collect(s, func(w *worker) bool {
		w.obey(&next)
		return true
	})
	return nil
}

// obey has what was taken from the configuration before taken from c.
func (w *worker) obey(c *Config) {
	w.stats.slowFrom = c.SlowFrom
	for _, cl := range w.clients {
		cl.parser.Limits = &c.Limits
		cl.conn.SetWatermarks(c.OutputSoft/2, c.OutputSoft)
		if cl.holds == 0 {
			cl.window = c.InFlight
		}
	}
}
