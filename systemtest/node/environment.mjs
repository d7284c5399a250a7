// What the test in Go tells the suites: where the sidecars are and how to restart the one that is theirs.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

const variable = name => process.env[name] ?? assert.fail(`${name} is not set: the suites are run by go test ./systemtest`)
const address = name => {
  const [host, port] = variable(name).split(':')
  return { host, port: Number(port) }
}

export const sidecar = address('RINGSIDE') // of the cluster that all tests share
export const mine = address('RINGSIDE_MINE') // the suite may restart it

// restart ends the sidecar of the suite in that way, 'stop' or 'kill', and returns when it answers again.
export const restart = async how => {
  const response = await fetch(`${variable('RINGSIDE_RESTART')}?how=${how}`, { method: 'POST' })
  assert.equal(response.status, 200, await response.text())
}

// Rows that this suite has for itself: user:<first> and the nine after it.
const first = Number(variable('RINGSIDE_ROWS'))
export const row = n => ({ id: first + n, key: `user:${first + n}`, name: `user ${first + n}`, email: `user${first + n}@example.com` })

// eventually waits, at most 10 s, until f returns something true, and returns that.
export const eventually = async (what, f) => {
  for (const end = Date.now() + 10_000; Date.now() < end; await sleep(10)) {
    const got = await f()
    if (got) return got
  }
  assert.fail(`not within 10 s: ${what}`)
}

export const allBytes = Buffer.from(Array.from({ length: 1024 }, (_, i) => i % 256))
export const unicode = 'Grüße, 世界 — 🐘\u0000\r\n'
export const mebibyte = 'ring'.repeat(1 << 18)
