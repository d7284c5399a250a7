// Package examples has nothing but the test that runs the examples, each in a folder of its own, against one cluster.
package examples
