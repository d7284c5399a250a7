package evloop

const childEnv = "EVLOOP_TEST_CHILD"

func runChild(string) int { return 0 }
