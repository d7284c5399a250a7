// ioredis with its default options.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { Redis } from 'ioredis'
import { allBytes, eventually, mebibyte, mine, restart, row, sidecar, unicode } from './environment.mjs'

const client = new Redis(sidecar)
after(() => client.quit())

// another returns a second connection, which ends with the test.
const another = t => {
  const c = client.duplicate()
  t.after(() => c.disconnect())
  return c
}

test('connects with RESP3', async () => {
  const info = await client.client('INFO')
  assert.match(info, / resp=3/)
  assert.match(info, / lib-name=ioredis/)
  assert.equal(client.status, 'ready')
})

test('strings', async () => {
  assert.equal(await client.set('io:s', 'x'), 'OK')
  assert.equal(await client.get('io:s'), 'x')
  assert.equal(await client.get('io:none'), null)
  assert.equal(await client.ttl('io:s'), -1)
  assert.equal(await client.expire('io:s', 100), 1)
  assert.ok((await client.ttl('io:s')) > 90)
  assert.equal(await client.set('io:s', 'y', 'EX', 100, 'NX'), null)
  assert.equal(await client.del('io:s', 'io:none', 'io:n'), 1)
  assert.equal(await client.incr('io:n'), 1)
  assert.equal(await client.incrby('io:n', 41), 42)
  assert.equal(await client.incrbyfloat('io:n', 0.5), '42.5')
  assert.equal(await client.exists('io:n', 'io:n', 'io:s'), 2)
})

test('many keys', async () => {
  const keys = Array.from({ length: 50 }, (_, i) => `io:m:${i}`)
  assert.equal(await client.mset(new Map(keys.map((k, i) => [k, String(i)]))), 'OK')
  assert.deepEqual(await client.mget('io:none', ...keys, 'io:none'), [null, ...keys.map((_, i) => String(i)), null])
  assert.equal(await client.del(...keys, 'io:none'), 50)
})

test('hashes, sets and sorted sets', async () => {
  await client.del('io:h', 'io:set', 'io:z')
  assert.equal(await client.hset('io:h', { a: '1', b: 'zwei' }), 2)
  assert.deepEqual({ ...(await client.hgetall('io:h')) }, { a: '1', b: 'zwei' })
  assert.deepEqual({ ...(await client.hgetall('io:none')) }, {})
  assert.deepEqual(await client.hmget('io:h', 'b', 'none'), ['zwei', null])
  assert.equal(await client.sadd('io:set', 'x', 'y'), 2)
  assert.deepEqual([...(await client.smembers('io:set'))].sort(), ['x', 'y'])
  assert.equal(await client.zadd('io:z', 1.5, 'one', 2, 'two'), 2)
  assert.equal(Number(await client.zscore('io:z', 'one')), 1.5)
  assert.equal(await client.zscore('io:z', 'none'), null)
})

test('rows', async () => {
  const r = row(0)
  const read = JSON.parse(await client.get(r.key))
  assert.deepEqual([read.id, read.name, read.email], [r.id, r.name, r.email])
  const all = await client.hgetall(r.key)
  assert.deepEqual([all.id, all.name, all.email], [String(r.id), r.name, r.email])
  assert.equal(await client.set(r.key, '{"name":"by ioredis","email":null}'), 'OK')
  assert.deepEqual(await client.hmget(r.key, 'name', 'email', 'none'), ['by ioredis', null, null])
  assert.equal(await client.hset(r.key, 'email', unicode.replace('\0', '')), 0)
  assert.equal(await client.hget(r.key, 'email'), unicode.replace('\0', ''))
  assert.equal(await client.hset(r.key, 'visits', 7), 0)
  assert.equal(await client.hincrby(r.key, 'visits', 35), 42)
  const mixed = await client.mget('io:none', r.key, row(1).key)
  assert.deepEqual([mixed[0], JSON.parse(mixed[1]).visits, JSON.parse(mixed[2]).name], [null, 42, row(1).name])
  assert.equal(await client.del(r.key, 'io:none'), 1)
  assert.equal(await client.get(r.key), null)
  assert.deepEqual({ ...(await client.hgetall(r.key)) }, {})
})

test('pipeline', async () => {
  const pipeline = client.pipeline()
  for (let i = 0; i < 200; i++) pipeline.set(`io:p:${i}`, i).get(`io:p:${i}`)
  pipeline.lpush('io:p:0', 'x').get(row(2).key).get('io:none')
  const results = await pipeline.exec()
  for (let i = 0; i < 200; i++) assert.deepEqual(results.slice(2 * i, 2 * i + 2), [[null, 'OK'], [null, String(i)]])
  assert.match(results[400][0].message, /^WRONGTYPE /)
  assert.equal(JSON.parse(results[401][1]).name, row(2).name)
  assert.deepEqual(results[402], [null, null])
})

test('errors', async () => {
  const fails = (code, call) => assert.rejects(call, e => e.name === 'ReplyError' && e.message.startsWith(`${code} `))
  await fails('BADROW', client.set(row(3).key, '{"nope":1}'))
  await fails('BADROW', client.set(row(3).key, 'no JSON'))
  await fails('BADKEY', client.get('user:03'))
  await client.set('io:string', 'x')
  await fails('WRONGTYPE', client.lpush('io:string', 'y'))
  await fails('CROSSSLOT', client.rename('io:string', 'io:other'))
  await fails('ERR', client.expire(row(3).key, 10))
  await fails('ERR', client.call('NOSUCHCOMMAND'))
  assert.equal(JSON.parse(await client.get(row(3).key)).name, row(3).name)
})

test('any bytes, and many of them', async () => {
  await client.set('io:bytes', allBytes)
  assert.deepEqual(await client.getBuffer('io:bytes'), allBytes)
  await client.set(allBytes, unicode)
  assert.equal(await client.get(allBytes), unicode)
  await client.set('io:large', mebibyte)
  assert.ok((await client.get('io:large')) === mebibyte)
  assert.equal(await client.strlen('io:large'), 1 << 20)
  assert.equal(await client.del('io:bytes', allBytes, 'io:large'), 3)
})

test('transactions', async t => {
  await client.del('{io:t}a', '{io:t}b')
  const done = await client.multi().set('{io:t}a', '1').incr('{io:t}a').hset('{io:t}b', 'f', 'v').hgetall('{io:t}b').get('{io:t}none').exec()
  assert.deepEqual(done.map(([e]) => e), [null, null, null, null, null])
  assert.deepEqual([done[0][1], done[1][1], done[2][1], { ...done[3][1] }, done[4][1]], ['OK', 2, 1, { f: 'v' }, null])
  const watching = another(t)
  await watching.watch('{io:t}a')
  await client.set('{io:t}a', 'changed')
  assert.equal(await watching.multi().set('{io:t}a', 'never').exec(), null)
  assert.equal(await client.get('{io:t}a'), 'changed')
  await assert.rejects(client.multi().set('io:t:1', '1').set('io:t:2', '2').exec(), /^ReplyError: EXECABORT /)
})

test('commands that wait', async t => {
  const waiting = another(t)
  await client.del('io:q')
  assert.equal(await waiting.blpop('io:q', 0.05), null)
  const popped = waiting.blpop('io:q', 10)
  await client.ping()
  assert.equal(await client.rpush('io:q', 'item'), 1)
  assert.deepEqual(await popped, ['io:q', 'item'])
})

test('publish and subscribe', async t => {
  const listener = another(t)
  const heard = []
  listener.on('message', (channel, message) => heard.push([channel, message]))
  listener.on('pmessage', (pattern, channel, message) => heard.push([pattern, channel, message]))
  listener.on('smessage', (channel, message) => heard.push(['s', channel, message]))
  assert.equal(await listener.subscribe('io:news', 'io:more'), 2)
  assert.equal(await listener.psubscribe('io:pattern:*'), 3)
  await listener.ssubscribe('io:shard')
  assert.equal(await client.publish('io:news', unicode), 1)
  assert.equal(await client.publish('io:pattern:x', 'by pattern'), 1)
  assert.equal(await client.spublish('io:shard', 'to a shard'), 1)
  assert.equal(await client.publish('io:nobody', 'unheard'), 0)
  await eventually('three messages', () => heard.length >= 3)
  assert.equal(await listener.unsubscribe('io:news', 'io:more'), 1)
  assert.deepEqual(heard.sort(), [['io:news', unicode], ['io:pattern:*', 'io:pattern:x', 'by pattern'], ['s', 'io:shard', 'to a shard']].sort())
})

test('all keys', async () => {
  const keys = Array.from({ length: 100 }, (_, i) => `io:scan:${i}`).sort()
  await client.mset(new Map(keys.map(k => [k, 'x'])))
  const found = new Set()
  for await (const some of client.scanStream({ match: 'io:scan:*', count: 20 })) some.forEach(k => found.add(k))
  assert.deepEqual([...found].sort(), keys)
  assert.deepEqual((await client.keys('io:scan:*')).sort(), keys)
})

test('comes back when the sidecar does', async t => {
  const own = new Redis(mine)
  t.after(() => own.disconnect())
  const failures = []
  own.on('error', e => failures.push(e.code))
  const listener = new Redis(mine)
  t.after(() => listener.disconnect())
  listener.on('error', e => failures.push(e.code))
  await listener.subscribe('io:after')
  for (const how of ['stop', 'kill']) {
    await own.set('io:back', how)
    const closed = new Promise(resolve => own.once('close', resolve))
    const back = restart(how)
    await closed
    const meanwhile = own.get('io:back') // kept until the connection is there again
    await back
    assert.equal(await meanwhile, how)
    await eventually('ready', () => own.status === 'ready')
    assert.equal(JSON.parse(await own.get(row(4).key)).name, row(4).name)
    const message = new Promise(resolve => listener.once('message', (_, m) => resolve(m)))
    await eventually('subscribed again', async () => (await own.publish('io:after', how)) === 1)
    assert.equal(await message, how)
  }
  assert.ok(failures.every(code => ['ECONNREFUSED', 'ECONNRESET', 'EPIPE'].includes(code)), failures.join())
})
