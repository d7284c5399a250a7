package admin

import "net/http"

type page struct{}

func newPage() (*page, error) { return &page{}, nil }

func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	if t := s.current(w, r); t != nil {
		answer, _ := s.rings.documents(t)
		answer.write(w, r)
	}
}
