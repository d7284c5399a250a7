package config

import (
	"bytes"
	"fmt"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"
)

// Masked returns the effective configuration as YAML: defaults filled in, secrets masked, passwords inside connection strings too.
// What is empty and optional is left out.
func (c *Config) Masked() []byte {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(node(reflect.ValueOf(*c))); err != nil {
		panic("config: a tree of plain nodes cannot fail to encode: " + err.Error())
	}
	if err := e.Close(); err != nil {
		panic("config: writing to memory cannot fail: " + err.Error())
	}
	return out.Bytes()
}

// node is the inverse of decoder.value. It returns nil for what is left out.
func node(v reflect.Value) *yaml.Node {
	switch value := v.Interface().(type) {
	case time.Duration:
		return scalar("!!str", formatDuration(value))
	case Size:
		return scalar("!!str", value.String())
	}
	switch v.Kind() {
	case reflect.Struct:
		return mappingNode(v)
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return node(v.Elem())
	case reflect.Slice:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			item := node(v.Index(i))
			item.Style = yaml.FlowStyle // one server a line
			list.Content = append(list.Content, item)
		}
		if v.Len() == 0 {
			return nil
		}
		return list
	case reflect.String:
		if v.Len() == 0 {
			return nil
		}
		return scalar("!!str", fmt.Sprint(v.Interface())) // Secret and DSN mask themselves
	case reflect.Bool:
		return scalar("!!bool", fmt.Sprint(v.Bool()))
	case reflect.Int:
		return scalar("!!int", fmt.Sprint(v.Int()))
	}
	panic("config: no encoding for " + v.Type().String())
}

func mappingNode(v reflect.Value) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("yaml")
		if key == "" {
			continue
		}
		value := node(v.Field(i))
		if value == nil || value.Kind == yaml.MappingNode && len(value.Content) == 0 && v.Field(i).Kind() == reflect.Struct {
			continue
		}
		m.Content = append(m.Content, scalar("!!str", key), value)
	}
	return m
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}
