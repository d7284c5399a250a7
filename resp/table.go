package resp

const (
	longestName = 24
	lookupSeed  = 0
	lookupBits  = 12
)

var table = [...]CommandInfo{{Name: "get", Arity: 2}}
var lookupIndex [4096]uint8
