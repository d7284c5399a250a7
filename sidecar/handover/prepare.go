package handover

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"ringside/cache"
	"ringside/sidecar/topology"
)

// readyName is the key under which a server keeps for which epoch, and as which process, it was last made ready.
const readyName = cache.Prefix + "ready"

var errAnotherRun = errors.New("it was restarted or replaced meanwhile")

// Prepare makes a server ready to be used by the next topology: it is emptied, and no sidecar whose topology is older than epoch can send
// it plain keys any more. It returns the run_id of the process that was made ready, which the next topology is to name. epoch is that of the
// present topology, in which nobody may use this process of the server. Only database 0 is emptied. Any sidecar may call it, several at a time too; errStale
// or a *cache.ServerError say that it is not ready.
//
// The order is what makes it safe. First the marker: whoever comes from now on with an older topology sees it, and does not use the server. Then
// all who came before are sent away, so nothing of theirs can be executed later. Then the server is emptied and marked again in one atomic step:
// there is no moment without the marker, and what is gone when it returns never comes back. That step is made once for an epoch, and not when the
// marker is of a later one: a sidecar that comes late cannot empty a server that is in use.
func (c *Carrier) Prepare(ctx context.Context, server string, epoch uint64) (runID string, err error) {
	conn, done, err := c.single(server)
	if err != nil {
		return "", err
	}
	defer done()
	runID, err = c.prepare(ctx, conn, server, epoch)
	return runID, serverError(server, err)
}

func (c *Carrier) prepare(ctx context.Context, conn *redis.Conn, server string, epoch uint64) (string, error) {
	runID, err := c.runID(ctx, conn)
	if err != nil {
		return "", err
	}
	if err := c.raise(ctx, conn, server, epoch); err != nil {
		return "", err
	}
	list, err := c.hindering(ctx, conn, server, func(caller topology.Caller) bool { return caller.Epoch < epoch })
	if err != nil {
		return "", err
	}
	for _, one := range list {
		if err := c.kill(ctx, conn, server, one); err != nil {
			return "", err
		}
	}
	if err := c.forgetFunctions(ctx, conn, epoch); err != nil {
		return "", err
	}
	step, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	marker := topology.Marker{Epoch: epoch}.String()
	n, err := c.scripts.ready.Run(step, conn, []string{topology.MarkerName, readyName}, epoch, marker, runID).Int64()
	switch {
	case err != nil:
		return "", err
	case n < 0:
		return "", errStale
	}
	again, err := c.runID(ctx, conn)
	if err == nil && again != runID {
		err = errAnotherRun
	}
	if err != nil {
		return "", err
	}
	c.log.Info("a cache server is ready", "server", server, "run_id", runID, "epoch", epoch, "emptied", n == 1, "connections_ended", len(list))
	return runID, nil
}

// forgetFunctions removes the functions that a server has brought back from its disk, among them such as were deleted meanwhile: sidecars teach it the
// present ones when they use it. A server that has been in use since then keeps them. Scripts are not kept on disk.
func (c *Carrier) forgetFunctions(ctx context.Context, conn *redis.Conn, epoch uint64) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	if m, _, err := readMarker(ctx, conn); err != nil || m.Epoch > epoch {
		return err
	}
	err := conn.Do(ctx, "FUNCTION", "FLUSH", "SYNC").Err()
	if err != nil && redis.HasErrorPrefix(err, "ERR unknown command") { // before Redis 7
		return nil
	}
	return err
}

// Empty returns how many keys a server has in database 0 that are not ringside's own marks. Somebody may be using them: a server that is added is
// emptied only if it has none, or if that was asked for.
func (c *Carrier) Empty(ctx context.Context, server string) (keys int64, err error) {
	conn, done, err := c.single(server)
	if err != nil {
		return 0, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	pipe := conn.TxPipeline()
	size := pipe.DBSize(ctx)
	own := pipe.Exists(ctx, topology.MarkerName, readyName)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, serverError(server, err)
	}
	return size.Val() - own.Val(), nil
}

// single returns one connection to whatever process a server is now.
func (c *Carrier) single(server string) (*redis.Conn, func(), error) {
	client, err := c.deps.Servers.Raw(server)
	if err != nil {
		return nil, nil, serverError(server, err)
	}
	conn := client.Conn()
	return conn, func() { _, _ = conn.Close(), client.Close() }, nil
}

func (c *Carrier) runID(ctx context.Context, conn *redis.Conn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	info := conn.InfoMap(ctx, "server")
	if err := info.Err(); err != nil {
		return "", fmt.Errorf("INFO server: %w", err)
	}
	if id := info.Item("Server", "run_id"); id != "" {
		return id, nil
	}
	return "", errors.New("INFO server: no run_id in the answer")
}
