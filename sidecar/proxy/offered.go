package proxy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"ringside/resp"
)

// whyNotOffered says why a command cannot be answered by a sidecar before many cache servers; empty: there is nothing to say.
func whyNotOffered(name string) string {
	container, _, _ := strings.Cut(name, "|")
	switch container {
	case "monitor":
		return "showing every request would slow down all of them; see SLOWLOG and the admin address"
	case "debug", "pfdebug", "pfselftest":
		return "it is about the insides of one server: connect to that"
	case "replicaof", "slaveof", "sync", "psync", "replconf", "failover", "wait":
		return "there is no primary and no replica here; the cache servers are on a ring, see RING NODES"
	case "shutdown", "save", "bgsave", "bgrewriteaof":
		return "it is for whoever runs the cache servers, which others use too"
	case "swapdb", "move":
		return "there is one database"
	case "module":
		return "modules are for whoever runs the cache servers"
	case "migrate":
		return "keys lie where the ring places them; use DUMP and RESTORE"
	case "acl":
		return "there is one user, default, whose password is in the configuration file"
	case "config":
		return "the configuration is a file, and the counters are at /metrics of the admin address"
	case "memory":
		return "each cache server has a memory of its own: connect to that; MEMORY USAGE key is offered"
	case "latency":
		return "the times of all requests are at /metrics of the admin address; LATENCY LATEST, HISTORY, RESET and DOCTOR are offered"
	case "client":
		return "what a client would be told of has to come from many servers; ask without tracking"
	case "script":
		return "debugging stops a server that others use too"
	}
	return ""
}

func (w *worker) refuse(cl *client, c *command, _ resp.Command) bool {
	text := fmt.Sprintf("ERR %s is not offered by ringside", spoken(c.info.Name))
	if why := whyNotOffered(c.info.Name); why != "" {
		text += ": " + why
	}
	cl.refuse(w, resp.Refusal(text))
	return true
}

const (
	errDatabase = resp.Refusal("ERR DB index is out of range")
	errNumber   = resp.Refusal("ERR value is not an integer or out of range")
)

// checkDatabase refuses MOVE, and COPY to another database: there is one, but the cache servers may have more, where nobody would find the
// key again.
func checkDatabase(c *command, args [][]byte) error {
	if c.info.Name == "move" {
		return resp.Refusal("ERR MOVE is not offered by ringside: " + whyNotOffered("move"))
	}
	for i := 3; i < len(args); i++ {
		if !bytes.EqualFold(args[i], []byte("db")) || i+1 == len(args) {
			continue // what else is wrong the server will say
		}
		i++
		switch n, err := strconv.ParseInt(string(args[i]), 10, 64); {
		case err != nil:
			return errNumber
		case n != 0:
			return errDatabase
		}
	}
	return nil
}

// ownHandler returns the handler of a command that is about the sidecar itself and is not in localHandler, or nil.
func ownHandler(name string) handler {
	switch name {
	case "client|list":
		return (*worker).clientList
	case "client|kill":
		return (*worker).clientKill
	case "client|pause":
		return (*worker).clientPause
	case "client|unpause":
		return (*worker).clientUnpause
	case "client|unblock":
		return (*worker).clientUnblock
	case "client|reply":
		return (*worker).clientReply
	case "client|getredir":
		return answer(func(_ *client, _ resp.Command, dst []byte) []byte { return resp.AppendInt(dst, -1) })
	case "client|trackinginfo":
		return answer(clientTrackingInfo)
	case "client|tracking":
		return (*worker).clientTracking
	case "client|caching":
		return answer(func(_ *client, _ resp.Command, dst []byte) []byte {
			return resp.AppendError(dst, "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
		})
	case "slowlog|get":
		return (*worker).slowlogGet
	case "slowlog|len":
		return (*worker).slowlogLen
	case "slowlog|reset":
		return (*worker).slowlogReset
	case "latency|latest":
		return (*worker).latencyLatest
	case "latency|history":
		return (*worker).latencyHistory
	case "latency|reset":
		return (*worker).latencyReset
	case "latency|doctor":
		return (*worker).latencyDoctor
	case "lastsave": // Redis answers with the time of its start, too, when it never saves
		return answer(func(cl *client, _ resp.Command, dst []byte) []byte {
			return resp.AppendInt(dst, cl.worker.server.started.Unix())
		})
	case "acl|whoami":
		return answer(func(_ *client, _ resp.Command, dst []byte) []byte { return resp.AppendBulk(dst, "default") })
	case "acl|users":
		return answer(func(_ *client, _ resp.Command, dst []byte) []byte {
			return resp.AppendBulk(resp.AppendArray(dst, 1), "default")
		})
	case "acl|cat", "acl|genpass", "lolwut", "client|help", "config|help", "slowlog|help", "latency|help", "acl|help", "memory|help",
		"object|help", "xinfo|help", "xgroup|help", "command|help", "command|docs":
		return (*worker).anyOne // any Redis gives the same answer
	}
	return nil
}

func clientTrackingInfo(cl *client, _ resp.Command, dst []byte) []byte {
	dst = resp.AppendMap(dst, cl.proto, 3)
	dst = resp.AppendBulk(dst, "flags")
	dst = resp.AppendBulk(resp.AppendSet(dst, cl.proto, 1), "off")
	dst = resp.AppendInt(resp.AppendBulk(dst, "redirect"), -1)
	return resp.AppendArray(resp.AppendBulk(dst, "prefixes"), 0)
}

// clientTracking is CLIENT TRACKING ON|OFF: off it always is.
func (w *worker) clientTracking(cl *client, c *command, cmd resp.Command) bool {
	switch {
	case bytes.EqualFold(cmd.Args[2], []byte("on")):
		return w.refuse(cl, c, cmd)
	case bytes.EqualFold(cmd.Args[2], []byte("off")):
		return answer(ok)(w, cl, c, cmd)
	}
	cl.refuse(w, errSyntax)
	return true
}
