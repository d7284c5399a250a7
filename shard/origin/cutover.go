package origin

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// cuttingOverSQL asks whether the part that holds the view is between the freeze and the end of the cut-over.
const cuttingOverSQL = `select coalesce((select p.state in ('frozen', 'closed') from ringside.view v join ringside.part p on p.id = v.cutover), false)`

// CuttingOver reports whether writes of vnodes, or of a key, that move away from the shard wait just now for their cut-over to end. The question costs the shard
// little. Errors: *shard.DownError, ctx's own.
func (f *Fleet) CuttingOver(ctx context.Context, name string) (under bool, err error) {
	p, err := f.pool(name)
	if err != nil {
		return false, err
	}
	err = p.run(ctx, internal, f.cfg.LoadTimeout+Grace, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, cuttingOverSQL).Scan(&under)
	})
	return under, err
}
