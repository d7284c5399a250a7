package membership

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Messages. Each begins with its kind and the version of its layout:
//
//	0  kind
//	1  version
//	2  what the kind says
//
//	hints     uvarint count, then that many records         packets and push/pull state
//	topology  record of the sender, then the topology,      streams
//	          deflated, to the end
//	request   record of the sender                          streams
//
// A record is a uvarint with the number of bytes that follow, and in them:
//
//	length (1 byte) and name
//	length (1 byte) and boot id
//	uvarint sequence number
//	1 byte of flags: 1 leaving
//	uvarint epoch
//	length (1 byte) and digest
//	the votes, see appendVotes; absent in records of versions without votes, and in what those pass on
//
// Fields may be added at the end of a record without a new version: readers skip what they do not know. Anything else takes a new
// kind or version; messages of an unknown kind or version are dropped and counted, so both must be readable before either is sent.
const (
	kindHints    = 1
	kindTopology = 2
	kindRequest  = 3

	messageVersion = 1
	flagLeaving    = 1
)

// Limits. A packet's payload must fit memberlist's packet buffer (1400 bytes) less its framing, label and encryption, else it would
// lie in the queue for ever; we stay well below. A record takes at most maxRecord bytes, so at least one always fits.
const (
	maxRecord = 2 + 1 + maxName + 1 + maxBoot + binary.MaxVarintLen64 + 1 + binary.MaxVarintLen64 + 1 + maxDigest +
		binary.MaxVarintLen64 + 1 + maxVoteBytes
	maxPacket   = 1000
	maxState    = 1 << 20 // push/pull state: ten thousand sidecars and more
	maxTopology = 8 << 20 // a topology, inflated
	maxReliable = 4 << 20 // a topology message as it travels
)

var (
	errMessage = errors.New("malformed message")
	errKind    = errors.New("unknown message kind or version")
	errTooLong = errors.New("message too long")
)

type message struct {
	kind    byte
	records []record // of hints; for the other kinds the sender's alone
	body    []byte   // of a topology: still deflated; aliases the input
}

func appendRecord(b []byte, r record) []byte {
	var flags byte
	if r.Leaving {
		flags |= flagLeaving
	}
	f := make([]byte, 0, maxRecord)
	f = appendString(f, r.Name)
	f = appendString(f, r.Boot)
	f = binary.AppendUvarint(f, r.Seq)
	f = append(f, flags)
	f = binary.AppendUvarint(f, r.Hint.Epoch)
	f = appendString(f, r.Hint.Digest)
	f = appendVotes(f, r)
	return append(binary.AppendUvarint(b, uint64(len(f))), f...)
}

func (r *reader) record() record {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad = true
		return record{}
	}
	f := reader{b: r.take(int(n)), bad: r.bad}
	var rec record
	rec.Name = f.string(maxName)
	rec.Boot = f.string(maxBoot)
	rec.Seq = f.uvarint()
	rec.Leaving = f.byte()&flagLeaving != 0
	rec.Hint.Epoch = f.uvarint()
	rec.Hint.Digest = f.string(maxDigest)
	rec.Votes, rec.VotesSeq = f.votes(rec.Seq)
	if f.bad || rec.Name == "" || rec.Seq == 0 {
		r.bad = true
		return record{}
	}
	return rec
}

// encodeHints packs records, in the given order, into one message of at most limit bytes. A record that does not fit any more is passed
// over, so that a long one does not hold up those behind it; encodeHints returns what it took. The message is nil when that is nothing.
func encodeHints(records []record, limit int) (msg []byte, taken []record) {
	const head = 2 + binary.MaxVarintLen32
	var body, one []byte
	for _, r := range records {
		one = appendRecord(one[:0], r)
		if head+len(body)+len(one) <= limit {
			body, taken = append(body, one...), append(taken, r)
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	b := binary.AppendUvarint([]byte{kindHints, messageVersion}, uint64(len(taken)))
	return append(b, body...), taken
}

func encodeRequest(from record) []byte {
	return appendRecord([]byte{kindRequest, messageVersion}, from)
}

func encodeTopology(from record, deflated []byte) ([]byte, error) {
	b := append(appendRecord([]byte{kindTopology, messageVersion}, from), deflated...)
	if len(b) > maxReliable {
		return nil, fmt.Errorf("%w: topology takes %d bytes, at most %d are sent", errTooLong, len(b), maxReliable)
	}
	return b, nil
}

// decodeMessage reads any message. Strings are copies; body aliases b.
func decodeMessage(b []byte) (message, error) {
	if len(b) > maxReliable {
		return message{}, errTooLong
	}
	r := reader{b: b}
	m := message{kind: r.byte()}
	version := r.byte()
	if r.bad {
		return message{}, errMessage
	}
	if version != messageVersion {
		return message{}, errKind
	}
	switch m.kind {
	case kindHints:
		// The count is not believed when memory is laid out: a record takes at least 7 bytes.
		n := r.uvarint()
		if n > uint64(len(r.b)) {
			return message{}, errMessage
		}
		m.records = make([]record, 0, min(n, uint64(len(r.b)/7)))
		for range n {
			rec := r.record()
			if r.bad {
				return message{}, errMessage
			}
			m.records = append(m.records, rec)
		}
	case kindRequest:
		m.records = []record{r.record()}
	case kindTopology:
		m.records = []record{r.record()}
		m.body = r.b
	default:
		return message{}, errKind
	}
	if r.bad {
		return message{}, errMessage
	}
	return m, nil
}

// deflate compresses a topology. memberlist's own compression is off: it costs time on every packet and hides packets that are too long.
func deflate(body []byte) ([]byte, error) {
	if len(body) > maxTopology {
		return nil, fmt.Errorf("%w: topology has %d bytes, at most %d are sent", errTooLong, len(body), maxTopology)
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// inflate is the opposite of deflate; it stops at maxTopology whatever the input claims.
func inflate(deflated []byte) ([]byte, error) {
	r := flate.NewReader(bytes.NewReader(deflated))
	body, err := io.ReadAll(io.LimitReader(r, maxTopology+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %v", errMessage, err)
	case len(body) > maxTopology:
		return nil, errTooLong
	}
	return body, nil
}
