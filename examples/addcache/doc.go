// Addcache lets a cache server join while rows are read as fast as they come, and shows what the readers notice of it, second by second.
package main
