package cache

import (
	"context"
	"fmt"
	"time"
)

// The names of what is kept on a former server about the hand-over of one shard's rows.
func closedMarker(shard string) string { return Prefix + "closed:" + shard }
func claimName(shard string) string    { return Prefix + "carrying:" + shard }

// closedFor is how long a former server remembers that it was closed: longer than any reader can be late.
const closedFor = time.Hour

// carriedFor is how long it remembers that it was gone through for the first time: long enough for all keepers to see it.
const carriedFor = time.Minute

// Claim is who may go through the entries of a former server, to take them over and then close it.
type Claim uint8

// The answers to Servers.Claim.
const (
	ClaimOthers Claim = iota // somebody else does it
	ClaimOurs
	ClaimClosed  // it has been done: the server is closed
	ClaimCarried // it has been done for the first time, see CarriedFrom
)

// closing are the scripts by which a former server is emptied once and then closed.
type closing struct {
	claim   *script // second key: the marker. ARGV: token, life in ms, epoch, whether to go through it again. The Claim
	carried *script // on the claim. ARGV: token, epoch, life in ms. 1: done, 0: the claim is not ours
	close   *script // on the marker. ARGV: epoch, life in ms. 1
}

func newClosing() closing {
	return closing{
		claim: newScript(`
local closed = redis.call('GET', KEYS[2])
if closed and tonumber(closed) >= tonumber(ARGV[3]) then return 2 end
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 8) == 'carried ' then
  if ARGV[4] == '0' and held == 'carried ' .. ARGV[3] then return 3 end
elseif held and held ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`),
		carried: newScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], 'carried ' .. ARGV[2], 'PX', ARGV[3])
return 1`),
		close: newScript(`
local closed = 0
if redis.call('TYPE', KEYS[1]).ok == 'string' then closed = tonumber(redis.call('GET', KEYS[1])) or 0 end
if closed >= tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1`),
	}
}

// Claim asks a server for the right to take over what it holds of the shard's rows, which the change of that epoch takes from it, or prolongs it.
// One holder has it at a time, known by token; it lapses after life. again: also if CarriedFrom says that it has been done.
func (s *Servers) Claim(ctx context.Context, server, runID, shard string, epoch uint64, token string, life time.Duration, again bool) (Claim, error) {
	n, err := s.once(ctx, server, runID, &step{
		script: s.closing.claim, name: claimName(shard), more: []string{closedMarker(shard)}, args: []any{token, life.Milliseconds(), epoch, flag(again)},
	})
	return Claim(n), err
}

// CarriedFrom ends a claim and tells those who ask for it in the next minute that what the server held of the shard's rows has been taken over. Who asks
// later does it again, and finds little to do.
func (s *Servers) CarriedFrom(ctx context.Context, server, runID, shard string, epoch uint64, token string) error {
	_, err := s.once(ctx, server, runID, &step{
		script: s.closing.carried, name: claimName(shard), args: []any{token, epoch, carriedFor.Milliseconds()},
	})
	return err
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// CloseFor closes a server for the change of the ring of that epoch: from then on it hands over no entries of the shard's rows. It must have
// succeeded before the shard leaves shard.Active, since from then on writers do not clean entries there. To repeat it is harmless, an earlier
// epoch changes nothing. The error is a *ServerError.
func (s *Servers) CloseFor(ctx context.Context, server, runID, shard string, epoch uint64) error {
	_, err := s.once(ctx, server, runID, &step{
		script: s.closing.close, name: closedMarker(shard), args: []any{epoch, closedFor.Milliseconds()},
	})
	return err
}

// scanCount is about how many keys of a server one Scan looks at.
const scanCount = 500

// Scan returns some of the names of entries on a server, by SCAN: begin with cursor 0, go on with the one returned until that is 0.
func (s *Servers) Scan(ctx context.Context, server, runID string, cursor uint64) (names []string, next uint64, err error) {
	srv, err := s.of(Ref{Server: server, RunID: runID})
	if err != nil {
		return nil, 0, &ServerError{Server: server, Err: err}
	}
	defer s.release(srv)
	names, next, err = srv.client.Scan(ctx, cursor, Prefix+"*", scanCount).Result()
	if err != nil {
		return nil, 0, &ServerError{Server: server, Err: inOurWords(err)}
	}
	return names, next, nil
}

// once carries out one step on a server that must be of that incarnation.
func (s *Servers) once(ctx context.Context, server, runID string, st *step) (int64, error) {
	srv, err := s.of(Ref{Server: server, RunID: runID})
	if err != nil {
		return 0, &ServerError{Server: server, Err: err}
	}
	defer s.release(srv)
	st.srv = srv
	pipeline(ctx, srv, []*step{st})
	n, err := st.number()
	if err != nil {
		return 0, &ServerError{Server: server, Err: fmt.Errorf("handing over rows of shards: %w", inOurWords(err))}
	}
	return n, nil
}
