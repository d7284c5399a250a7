package topology

import (
	"ringside/ring"
	"ringside/shard"
)

// Copy is one place where a row may be cached. The zero value, with its generation of 0, is none.
type Copy struct {
	Server     uint16 // index into Caches
	Generation uint64 // the g of the entry's name
}

// IsNone reports whether there is no such place.
func (c Copy) IsNone() bool { return c.Generation == 0 }

// Copies says which cached copies of a row count.
type Copies struct {
	// Read is where readers look, and fill. None: the row is read from its shard.
	Read Copy
	// Carry is where a reader that has got the lease of Read takes the entry over from, instead of loading the row. None: it loads.
	Carry Copy
	// Clean are the Cleans copies that a writer puts out of reach, before and after its commit: the former one before the present one.
	Clean  [2]Copy
	Cleans int
	// Frozen: nobody may write the row now, because a copy that somebody may still be reading can be reached by nobody who writes.
	Frozen bool
}

// Cleaned reports whether writers clean c. A reader may fill c only if they do.
func (c *Copies) Cleaned(copy Copy) bool {
	for _, each := range c.Clean[:c.Cleans] {
		if each == copy {
			return true
		}
	}
	return false
}

// Moves returns the copies between which the row's entry is taken over while its writers clean both: from the former one to the present one. ok is false
// when nothing is to be taken over.
func (c *Copies) Moves() (from, to Copy, ok bool) {
	return c.Clean[0], c.Clean[1], c.Cleans == 2
}

func (c *Copies) clean(copies ...Copy) {
	for _, each := range copies {
		if !each.IsNone() {
			c.Clean[c.Cleans] = each
			c.Cleans++
		}
	}
}

// stage is how a row stands in the change that is being carried out, by one view.
type stage uint8

const (
	settled  stage = iota // only its present copy counts
	handing               // from a former copy that can be reached to the present one
	stranded              // its former copy cannot be reached, or is not known
)

// stageOf is the one decision about what a view means for a row of these vnodes, the cache's and the shard's. The view must be of t's epoch.
func (t *Topology) stageOf(view shard.View, vnode, shardVnode uint16) stage {
	flushed := t.flush[shardVnode] > view.From // what was cached may be wrong: nothing is taken over
	if view.Phase == shard.Done || t.since(vnode) <= view.From && !flushed {
		return settled
	}
	if !flushed && t.handsOver(view.From, vnode) {
		return handing
	}
	if view.Phase == shard.Active {
		return settled // the phase before has been waited out: nobody uses the former copy
	}
	return stranded
}

// handsOver reports whether a vnode's former copy is the one that counted at epoch from, and can be reached. The epochs between that one and the change
// may have been skipped: they moved nothing if the former copy is no younger.
func (t *Topology) handsOver(from uint64, vnode uint16) bool {
	f := t.former
	return f != nil && f.epoch >= from && f.generation[vnode] != 0 && f.generation[vnode] <= from
}

// since is the epoch from which on a vnode's present copy counts.
func (t *Topology) since(vnode uint16) uint64 {
	if i := t.cacheOf[vnode]; i != ring.None {
		return max(t.appointed[vnode], t.Caches[i].Gen)
	}
	return t.appointed[vnode]
}

func (t *Topology) present(vnode uint16) Copy {
	return Copy{Server: t.cacheOf[vnode], Generation: t.Generation(vnode)}
}

func (t *Topology) formerCopy(vnode uint16) Copy {
	return Copy{Server: t.former.owner[vnode], Generation: t.former.generation[vnode]}
}

// ReadCopy is Copies(view, vnode, shardVnode).Read, for event loops: a few comparisons.
func (t *Topology) ReadCopy(view shard.View, vnode, shardVnode uint16) Copy {
	switch t.stageOf(view, vnode, shardVnode) {
	case handing:
		if view.Phase == shard.Preparing {
			return t.formerCopy(vnode)
		}
	case stranded:
		return Copy{}
	}
	return t.present(vnode)
}

// Copies returns which cached copies of a row count while its shard has this view, which must be of t's epoch (promise P3; see section "Planned
// changes" of docs/ARCHITECTURE.md). vnode is the row's cache vnode.
func (t *Topology) Copies(view shard.View, vnode, shardVnode uint16) Copies {
	now := t.present(vnode)
	var c Copies
	switch t.stageOf(view, vnode, shardVnode) {
	case settled:
		c.Read = now
		c.clean(now)
	case handing:
		was := t.formerCopy(vnode)
		c.clean(was, now)
		if view.Phase == shard.Preparing {
			c.Read = was
		} else {
			c.Read, c.Carry = now, was
			if now.IsNone() {
				c.Carry = Copy{}
			}
		}
	case stranded:
		c.Frozen = true
	}
	return c
}

// HandsOver reports whether rows of a shard that comes from the given epoch change hands in such a way that phase shard.Active is needed:
// their former copies can be reached.
func (t *Topology) HandsOver(from uint64) bool {
	return t.anyVnode(func(v uint16) bool { return t.since(v) > from && t.handsOver(from, v) })
}

// ChangesRows reports whether any rows change hands for a shard that comes from the given epoch.
func (t *Topology) ChangesRows(from uint64) bool {
	return t.anyVnode(func(v uint16) bool { return t.since(v) > from || t.flush[v] > from })
}

func (t *Topology) anyVnode(is func(v uint16) bool) bool {
	for v := range ring.Vnodes {
		if is(uint16(v)) {
			return true
		}
	}
	return false
}

// FormerOwners lists the names of the servers from which rows of a shard that comes from the given epoch are taken over: they must be closed
// before phase shard.Done.
func (t *Topology) FormerOwners(from uint64) []string {
	seen := make([]bool, len(t.Caches))
	var names []string
	for v := range ring.Vnodes {
		v := uint16(v)
		if t.since(v) <= from || !t.handsOver(from, v) {
			continue
		}
		if i := t.former.owner[v]; !seen[i] {
			seen[i] = true
			names = append(names, t.Caches[i].Name)
		}
	}
	return names
}
