// Package lint has nothing but the test that the files for Compose and Kubernetes are valid by the schemas of both.
package lint
