package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Changed returns what differs between the configuration that is in use and one that is to take its place while the sidecar runs: the paths of its values,
// such as "limits.pipeline". The error names what cannot be changed so, at its place in next; it is one line, and nothing of next may be used then.
//
// What can be changed are limits, but for those of the shards' queues; redis.max_clients; gossip.keys; log.level and log.slow_requests; and of the keyspaces ttl and negative_ttl.
// A keyspace can be added, but not taken away: its rows would become plain keys under the hands of those who use them.
func (c *Config) Changed(next *Config) ([]string, error) {
	var all []string
	differences("", reflect.ValueOf(*c), reflect.ValueOf(*next), &all)
	all = slices.DeleteFunc(all, func(path string) bool { return strings.HasPrefix(path, "keyspaces") })
	var refused []string
	for _, path := range all {
		encrypted := len(c.Gossip.Keys) > 0 && len(next.Gossip.Keys) > 0 // keys can be changed, but not be begun or ended with
		if !changeable(path) || strings.HasPrefix(path, "gossip.keys") && !encrypted {
			refused = append(refused, path)
		}
	}
	changed, bad := changedKeyspaces(c.Keyspaces, next.Keyspaces)
	all = append(all, changed...)
	if refused = append(refused, bad...); len(refused) == 0 {
		return all, nil
	}
	at, _, _ := strings.Cut(refused[0], " ")
	return nil, next.At(at, fmt.Errorf("%s cannot be changed while the sidecar runs: restart it; everything stays as it was", strings.Join(refused, ", ")))
}

func changeable(path string) bool {
	switch path {
	case "limits.shard_queue", "limits.shard_queue_wait", "limits.shard_connect_timeout", "limits.shard_read_timeout", "limits.shard_write_timeout",
		"limits.shard_lock_timeout":
		return false
	case "redis.max_clients", "log.level", "log.slow_requests":
		return true
	}
	return strings.HasPrefix(path, "limits.") || strings.HasPrefix(path, "gossip.keys")
}

// differences collects the paths of the values that differ. A list that has another length differs as a whole.
func differences(path string, a, b reflect.Value, all *[]string) {
	differ := func() { *all = append(*all, path) }
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			name, ok := a.Type().Field(i).Tag.Lookup("yaml")
			if !ok {
				continue
			}
			if path != "" {
				name = path + "." + name
			}
			differences(name, a.Field(i), b.Field(i), all)
		}
	case reflect.Slice:
		if a.Len() != b.Len() {
			differ()
			return
		}
		for i := range a.Len() {
			differences(path+"["+strconv.Itoa(i)+"]", a.Index(i), b.Index(i), all)
		}
	case reflect.Pointer:
		if a.IsNil() != b.IsNil() {
			differ()
		} else if !a.IsNil() {
			differences(path, a.Elem(), b.Elem(), all)
		}
	default:
		if !a.Equal(b) {
			differ()
		}
	}
}

// changedKeyspaces compares by name. refused are the paths, in the order of next, that cannot be changed.
func changedKeyspaces(before, next []Keyspace) (changed, refused []string) {
	for i, k := range next {
		path := fmt.Sprintf("keyspaces[%d]", i)
		at := slices.IndexFunc(before, func(b Keyspace) bool { return b.Name == k.Name })
		if at < 0 {
			changed = append(changed, path)
			continue
		}
		var fields []string
		differences(path, reflect.ValueOf(before[at]), reflect.ValueOf(k), &fields)
		for _, f := range fields {
			if f == path+".ttl" || f == path+".negative_ttl" {
				changed = append(changed, f)
			} else {
				refused = append(refused, f)
			}
		}
	}
	for _, b := range before {
		if !slices.ContainsFunc(next, func(k Keyspace) bool { return k.Name == b.Name }) {
			refused = append(refused, fmt.Sprintf("keyspaces (%s is missing)", b.Name))
		}
	}
	return changed, refused
}
