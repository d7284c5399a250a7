package config

import (
	"reflect"
	"testing"
)

// reference is what users copy from.
const reference = "../../docs/ringside.yaml"

// withoutDefault are the settings for which the reference shows an example, because they have no default or depend on the machine.
var withoutDefault = []string{
	"name", "data_dir", "redis.password", "admin.token", "gossip.advertise", "gossip.join", "gossip.keys", "catalog", "default_cache", "caches", "shards", "keyspaces",
}

func loadReference(t *testing.T) *Config {
	t.Helper()
	env := map[string]string{
		"REDIS_PASSWORD": "a", "RINGSIDE_TOKEN": "b", "GOSSIP_KEY": "MDEyMzQ1Njc4OWFiY2RlZg==", "CACHE_PASSWORD": "c", "C1_PASSWORD": "d",
		"S2_DSN": "postgres://ringside@pg-2:5432/app",
	}
	c, err := Load(reference, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReferenceHasEveryKey(t *testing.T) {
	c := loadReference(t)
	var look func(typ reflect.Type, path string)
	look = func(typ reflect.Type, path string) {
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				key := typ.Field(i).Tag.Get("yaml")
				if key != "" && key != "tls" { // the files that it names would have to exist
					look(typ.Field(i).Type, join(path, key))
				}
			}
			return
		case reflect.Slice:
			path += "[0]"
			if typ.Elem().Kind() == reflect.Struct {
				look(typ.Elem(), path)
				return
			}
		}
		if _, ok := c.found[path]; !ok {
			t.Errorf("%s does not show %s", reference, path)
		}
	}
	look(reflect.TypeFor[Config](), "")
}

func TestReferenceShowsTheDefaults(t *testing.T) {
	var compare func(got, want reflect.Value, path string)
	compare = func(got, want reflect.Value, path string) {
		for _, example := range withoutDefault {
			if path == example {
				return
			}
		}
		if got.Kind() != reflect.Struct {
			if !reflect.DeepEqual(got.Interface(), want.Interface()) {
				t.Errorf("%s says %s: %v, the default is %v", reference, path, got.Interface(), want.Interface())
			}
			return
		}
		for i := range got.NumField() {
			if key := got.Type().Field(i).Tag.Get("yaml"); key != "" {
				compare(got.Field(i), want.Field(i), join(path, key))
			}
		}
	}
	c := loadReference(t)
	compare(reflect.ValueOf(*c), reflect.ValueOf(*Default()), "")

	// What a list's elements have by default.
	var cache Cache
	var shard Shard
	var ks Keyspace
	cache.setDefaults()
	shard.setDefaults()
	ks.setDefaults()
	if c.Caches[0].Weight != cache.Weight || c.Shards[0].Weight != shard.Weight || c.Shards[0].MaxConnections != shard.MaxConnections ||
		c.Keyspaces[0].Value != ks.Value {
		t.Errorf("%s shows other defaults for caches, shards or keyspaces than the program has", reference)
	}
}
