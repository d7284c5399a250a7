package proxy

import (
	"bytes"

	"ringside/resp"
)

// scriptHandler returns the handler of a command about scripts or functions, or nil.
func scriptHandler(name string) handler {
	switch name {
	case "eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro":
		return (*worker).runScript
	case "script|load":
		return whenOpen((*worker).owners, (*worker).scriptLoad)
	case "script|exists":
		return whenOpen((*worker).owners, (*worker).scriptExists)
	case "script|flush":
		return whenOpen((*worker).reachable, (*worker).scriptFlush)
	case "script|kill", "function|kill":
		return (*worker).killScript
	case "function|load":
		return whenOpen((*worker).owners, (*worker).functionLoad)
	case "function|delete":
		return whenOpen((*worker).reachable, (*worker).functionDelete)
	case "function|flush":
		return whenOpen((*worker).reachable, (*worker).functionFlush)
	case "function|restore":
		return whenOpen((*worker).owners, (*worker).functionRestore)
	case "function|list", "function|dump", "function|stats", "function|help", "script|help":
		return whenOpen((*worker).owners, (*worker).anyOne)
	}
	return nil
}

// runScript runs a script or function on the server that owns all of its keys, which is taught it first if need be.
func (w *worker) runScript(cl *client, c *command, cmd resp.Command) bool {
	vnode, err := w.placeKeys(c, cmd, (*worker).senseless)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	_, u, err := w.owner(vnode, cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	if !u.ready {
		return w.await(cl, c, u)
	}
	w.teach(u, c, cmd)
	w.pass(cl, c, cmd, u)
	return true
}

// teach makes sure that a server can run a script or function that this sidecar knows.
func (w *worker) teach(u *upstream, c *command, cmd resp.Command) {
	switch c.info.Name {
	case "eval", "eval_ro":
		w.server.library.remember(cmd.Args[1]) // clients go on with EVALSHA, on any server
	case "evalsha", "evalsha_ro":
		w.teachScript(u, cmd.Args[1])
	case "fcall", "fcall_ro":
		w.teachFunctions(u)
	}
}

func (w *worker) scriptLoad(cl *client, c *command, cmd resp.Command) bool {
	servers, err := w.owners(cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	body := bytes.Clone(cmd.Args[2])
	w.everywhere(cl, c, servers, cmd.Args, func(w *worker, r *request, frames [][]byte) {
		reply := firstError(frames)
		if !resp.IsError(reply) {
			w.server.library.remember(body)
		}
		w.finish(r, reply)
	})
	return true
}

// scriptExists is SCRIPT EXISTS sha...: a script is there if all servers have it, or if we would teach it to them.
func (w *worker) scriptExists(cl *client, c *command, cmd resp.Command) bool {
	servers, err := w.owners(cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	known := make([]bool, len(cmd.Args)-2)
	for i, sha := range cmd.Args[2:] {
		_, known[i] = w.server.library.script(sha)
	}
	w.everywhere(cl, c, servers, cmd.Args, func(w *worker, r *request, frames [][]byte) {
		if reply := firstError(frames); resp.IsError(reply) {
			w.finish(r, reply)
			return
		}
		there := make([]int64, len(known))
		for i := range there {
			there[i] = 1
		}
		for _, f := range frames {
			each, ok := resp.ElementsOf(f)
			if !ok || each.Len() != len(known) {
				w.fail(r, errStrangeReply)
				return
			}
			for i := range there {
				element, _ := each.Next()
				if n, _ := resp.IntOf(element); n == 0 && !known[i] {
					there[i] = 0
				}
			}
		}
		reply := resp.AppendArray(nil, len(there))
		for _, n := range there {
			reply = resp.AppendInt(reply, n)
		}
		w.finish(r, reply)
	})
	return true
}

// scriptFlush is SCRIPT FLUSH [ASYNC|SYNC]. Ringside's own scripts go with the others; it sends them again when it is told that they are
// missing.
func (w *worker) scriptFlush(cl *client, c *command, cmd resp.Command) bool {
	servers, err := w.reachable(cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	w.server.library.forgetScripts()
	w.everywhere(cl, c, servers, cmd.Args, func(w *worker, r *request, frames [][]byte) { w.finish(r, firstError(frames)) })
	return true
}

// killScript is SCRIPT KILL and FUNCTION KILL. A server that runs a script answers nothing on the connection that it came by, so it is told
// by one made for that.
func (w *worker) killScript(cl *client, c *command, cmd resp.Command) bool {
	t := w.route.topology
	if t == nil {
		cl.refuse(w, errNoTopology)
		return true
	}
	var servers []*upstream
	for _, i := range w.route.owners {
		u := w.newUpstream(upstreamKey{t.Caches[i].Name, t.Caches[i].Addr, cl.proto})
		u.retired, u.bare = true, true // closes when it has been answered
		servers = append(servers, u)
	}
	if servers == nil {
		cl.refuse(w, errNoCacheServer)
		return true
	}
	w.everywhere(cl, c, servers, cmd.Args, func(w *worker, r *request, frames [][]byte) { w.finish(r, anySuccess(frames)) })
	return true
}

// functionLoad is FUNCTION LOAD [REPLACE] code.
func (w *worker) functionLoad(cl *client, c *command, cmd resp.Command) bool {
	servers, err := w.owners(cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	source := string(cmd.Args[len(cmd.Args)-1])
	w.everywhere(cl, c, servers, cmd.Args, func(w *worker, r *request, frames [][]byte) {
		if name, ok := resp.BulkOf(anySuccess(frames)); ok {
			w.server.library.changeFunctions(func(sources map[string]string) { sources[string(name)] = source })
		}
		w.finish(r, firstError(frames))
	})
	return true
}

// functionDelete is FUNCTION DELETE name: it succeeds if any server had the library and all could be asked.
func (w *worker) functionDelete(cl *client, c *command, cmd resp.Command) bool {
	servers, err := w.reachable(cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	name := string(cmd.Args[2])
	w.server.library.changeFunctions(func(sources map[string]string) { delete(sources, name) })
	w.everywhere(cl, c, servers, cmd.Args, func(w *worker, r *request, frames [][]byte) { w.finish(r, anySuccess(frames)) })
	return true
}

// functionFlush is FUNCTION FLUSH [ASYNC|SYNC].
func (w *worker) functionFlush(cl *client, c *command, cmd resp.Command) bool {
	servers, err := w.reachable(cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	w.server.library.changeFunctions(func(sources map[string]string) { clear(sources) })
	w.everywhere(cl, c, servers, cmd.Args, func(w *worker, r *request, frames [][]byte) { w.finish(r, firstError(frames)) })
	return true
}

// functionRestore is FUNCTION RESTORE payload [FLUSH|APPEND|REPLACE]. The payload's format is the servers' own, so one of them is asked
// afterwards what was in it.
func (w *worker) functionRestore(cl *client, c *command, cmd resp.Command) bool {
	servers, err := w.owners(cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	w.everywhere(cl, c, servers, cmd.Args, func(w *worker, r *request, frames [][]byte) {
		reply := firstError(frames)
		if resp.IsError(reply) {
			w.finish(r, reply)
			return
		}
		e := &everywhere{r: r, done: func(w *worker, r *request, frames [][]byte) {
			sources := sourcesOf(frames[0])
			w.server.library.changeFunctions(func(all map[string]string) {
				clear(all)
				for name, source := range sources {
					all[name] = source
				}
			})
			w.finish(r, reply)
		}}
		e.send(w, servers[:1], [][]byte{[]byte("FUNCTION"), []byte("LIST"), []byte("WITHCODE")})
	})
	return true
}

// sourcesOf returns the libraries in the reply to FUNCTION LIST WITHCODE, by name.
func sourcesOf(frame []byte) map[string]string {
	sources := map[string]string{}
	list, _, err := resp.Decode(frame)
	if err != nil {
		return sources
	}
	for _, entry := range list.Elems {
		var name, source string
		for i := 0; i+1 < len(entry.Elems); i += 2 {
			switch entry.Elems[i].Text {
			case "library_name":
				name = entry.Elems[i+1].Text
			case "library_code":
				source = entry.Elems[i+1].Text
			}
		}
		if name != "" {
			sources[name] = source
		}
	}
	return sources
}
