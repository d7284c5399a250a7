// node-redis with its default options. @redis/client is the client itself; the package redis adds the commands of modules.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { createClient, RESP_TYPES } from '@redis/client'
import { allBytes, eventually, mebibyte, mine, restart, row, sidecar, unicode } from './environment.mjs'

const client = createClient({ socket: sidecar })
const failures = []
client.on('error', e => failures.push(e))
before(() => client.connect())
after(async () => {
  await client.close()
  assert.deepEqual(failures, [])
})

// another returns a second connection, which ends with the test.
const another = t => {
  const c = client.duplicate()
  c.on('error', e => failures.push(e))
  t.after(() => c.destroy())
  return c.connect()
}

test('connects with RESP3', async () => {
  const info = await client.clientInfo()
  assert.equal(info.resp, 3)
  assert.match(info.libName, /^node-redis/)
})

test('strings', async () => {
  assert.equal(await client.set('nr:s', 'x'), 'OK')
  assert.equal(await client.get('nr:s'), 'x')
  assert.equal(await client.get('nr:none'), null)
  assert.equal(await client.ttl('nr:s'), -1)
  assert.equal(await client.expire('nr:s', 100), 1)
  assert.ok((await client.ttl('nr:s')) > 90)
  assert.equal(await client.set('nr:s', 'y', { expiration: { type: 'EX', value: 100 }, condition: 'NX' }), null)
  assert.equal(await client.del(['nr:s', 'nr:none', 'nr:n']), 1)
  assert.equal(await client.incr('nr:n'), 1)
  assert.equal(await client.incrBy('nr:n', 41), 42)
  assert.equal(await client.incrByFloat('nr:n', 0.5), '42.5')
  assert.equal(await client.exists(['nr:n', 'nr:n', 'nr:s']), 2)
})

test('many keys', async () => {
  const keys = Array.from({ length: 50 }, (_, i) => `nr:m:${i}`)
  assert.equal(await client.mSet(keys.map((k, i) => [k, String(i)])), 'OK')
  assert.deepEqual(await client.mGet(['nr:none', ...keys, 'nr:none']), [null, ...keys.map((_, i) => String(i)), null])
  assert.equal(await client.del([...keys, 'nr:none']), 50)
})

test('hashes, sets and sorted sets', async () => {
  await client.del(['nr:h', 'nr:set', 'nr:z'])
  assert.equal(await client.hSet('nr:h', { a: '1', b: 'zwei' }), 2)
  assert.deepEqual({ ...(await client.hGetAll('nr:h')) }, { a: '1', b: 'zwei' })
  assert.deepEqual({ ...(await client.hGetAll('nr:none')) }, {})
  assert.deepEqual(await client.hmGet('nr:h', ['b', 'none']), ['zwei', null])
  assert.equal(await client.sAdd('nr:set', ['x', 'y']), 2)
  assert.deepEqual([...(await client.sMembers('nr:set'))].sort(), ['x', 'y'])
  assert.equal(await client.zAdd('nr:z', [{ score: 1.5, value: 'one' }, { score: Infinity, value: 'most' }]), 2)
  assert.deepEqual(await client.zmScore('nr:z', ['one', 'most', 'none']), [1.5, Infinity, null])
})

test('rows', async () => {
  const r = row(0)
  const read = JSON.parse(await client.get(r.key))
  assert.deepEqual([read.id, read.name, read.email], [r.id, r.name, r.email])
  const all = await client.hGetAll(r.key)
  assert.deepEqual([all.id, all.name, all.email], [String(r.id), r.name, r.email])
  assert.equal(await client.set(r.key, '{"name":"by node-redis","email":null}'), 'OK')
  assert.deepEqual(await client.hmGet(r.key, ['name', 'email', 'none']), ['by node-redis', null, null])
  assert.equal(await client.hSet(r.key, 'email', unicode.replace('\0', '')), 0)
  assert.equal(await client.hGet(r.key, 'email'), unicode.replace('\0', ''))
  assert.equal(await client.hSet(r.key, 'visits', 7), 0)
  assert.equal(await client.hIncrBy(r.key, 'visits', 35), 42)
  const mixed = await client.mGet(['nr:none', r.key, row(1).key])
  assert.deepEqual([mixed[0], JSON.parse(mixed[1]).visits, JSON.parse(mixed[2]).name], [null, 42, row(1).name])
  assert.equal(await client.del([r.key, 'nr:none']), 1)
  assert.equal(await client.get(r.key), null)
  assert.deepEqual({ ...(await client.hGetAll(r.key)) }, {})
})

test('pipeline', async () => {
  const calls = []
  for (let i = 0; i < 200; i++) calls.push(client.set(`nr:p:${i}`, String(i)), client.get(`nr:p:${i}`))
  calls.push(client.lPush('nr:p:0', 'x'), client.get(row(2).key), client.get('nr:none'))
  const results = await Promise.allSettled(calls)
  for (let i = 0; i < 200; i++) assert.deepEqual(results.slice(2 * i, 2 * i + 2).map(r => r.value), ['OK', String(i)])
  assert.match(results[400].reason.message, /^WRONGTYPE /)
  assert.equal(JSON.parse(results[401].value).name, row(2).name)
  assert.equal(results[402].value, null)
})

test('errors', async () => {
  const fails = (code, call) => assert.rejects(call, e => e.constructor.name === 'SimpleError' && e.message.startsWith(`${code} `))
  await fails('BADROW', client.set(row(3).key, '{"nope":1}'))
  await fails('BADROW', client.set(row(3).key, 'no JSON'))
  await fails('BADKEY', client.get('user:03'))
  await client.set('nr:string', 'x')
  await fails('WRONGTYPE', client.lPush('nr:string', 'y'))
  await fails('CROSSSLOT', client.rename('nr:string', 'nr:other'))
  await fails('ERR', client.expire(row(3).key, 10))
  await fails('ERR', client.sendCommand(['NOSUCHCOMMAND']))
  assert.equal(JSON.parse(await client.get(row(3).key)).name, row(3).name)
})

test('any bytes, and many of them', async () => {
  const bytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })
  await client.set('nr:bytes', allBytes)
  assert.deepEqual(await bytes.get('nr:bytes'), allBytes)
  await client.set(allBytes, unicode)
  assert.equal(await client.get(allBytes), unicode)
  await client.set('nr:large', mebibyte)
  assert.ok((await client.get('nr:large')) === mebibyte)
  assert.equal(await client.strLen('nr:large'), 1 << 20)
  assert.equal(await client.del(['nr:bytes', allBytes, 'nr:large']), 3)
})

test('transactions', async t => {
  await client.del(['{nr:t}a', '{nr:t}b'])
  const done = await client.multi().set('{nr:t}a', '1').incr('{nr:t}a').hSet('{nr:t}b', 'f', 'v').hGetAll('{nr:t}b').get('{nr:t}none').exec()
  assert.deepEqual([done[0], done[1], done[2], { ...done[3] }, done[4]], ['OK', 2, 1, { f: 'v' }, null])
  const watching = await another(t)
  await watching.watch('{nr:t}a')
  await client.set('{nr:t}a', 'changed')
  await assert.rejects(watching.multi().set('{nr:t}a', 'never').exec(), e => e.constructor.name === 'WatchError')
  assert.equal(await client.get('{nr:t}a'), 'changed')
  await assert.rejects(client.multi().set('nr:t:1', '1').set('nr:t:2', '2').exec(), /CROSSSLOT /)
})

test('commands that wait', async t => {
  const waiting = await another(t)
  await client.del('nr:q')
  assert.equal(await waiting.blPop('nr:q', 0.05), null)
  const popped = waiting.blPop('nr:q', 10)
  await client.ping()
  assert.equal(await client.rPush('nr:q', 'item'), 1)
  assert.deepEqual({ ...(await popped) }, { key: 'nr:q', element: 'item' })
})

test('publish and subscribe', async t => {
  const listener = await another(t)
  const heard = []
  const hear = (message, channel) => heard.push([channel, message])
  await listener.subscribe(['nr:news', 'nr:more'], hear)
  await listener.pSubscribe('nr:pattern:*', hear)
  await listener.sSubscribe('nr:shard', hear)
  assert.equal(await client.publish('nr:news', unicode), 1)
  assert.equal(await client.publish('nr:pattern:x', 'by pattern'), 1)
  assert.equal(await client.sPublish('nr:shard', 'to a shard'), 1)
  assert.equal(await client.publish('nr:nobody', 'unheard'), 0)
  await eventually('three messages', () => heard.length >= 3)
  assert.equal(await listener.get('nr:none'), null) // RESP3: a subscriber may use commands
  await listener.unsubscribe('nr:news')
  assert.deepEqual(heard.sort(), [['nr:news', unicode], ['nr:pattern:x', 'by pattern'], ['nr:shard', 'to a shard']])
})

test('all keys', async () => {
  const keys = Array.from({ length: 100 }, (_, i) => `nr:scan:${i}`).sort()
  await client.mSet(keys.map(k => [k, 'x']))
  const found = new Set()
  for await (const some of client.scanIterator({ MATCH: 'nr:scan:*', COUNT: 20 })) some.forEach(k => found.add(k))
  assert.deepEqual([...found].sort(), keys)
  assert.deepEqual((await client.keys('nr:scan:*')).sort(), keys)
})

test('comes back when the sidecar does', async t => {
  const own = createClient({ socket: mine })
  own.on('error', () => {}) // what it says while there is no sidecar is not the question
  t.after(() => own.destroy())
  await own.connect()
  const listener = createClient({ socket: mine })
  listener.on('error', () => {})
  t.after(() => listener.destroy())
  await listener.connect()
  const heard = []
  await listener.subscribe('nr:after', message => heard.push(message))
  for (const how of ['stop', 'kill']) {
    await own.set('nr:back', how)
    const away = new Promise(resolve => own.once('reconnecting', resolve))
    const back = restart(how)
    await away
    const meanwhile = own.get('nr:back').catch(e => e)
    await back
    // It is kept until the connection is there again; only while the kernel takes a killed process apart may it be sent and lost.
    if (how === 'stop') assert.equal(await meanwhile, how)
    await eventually('an answer', async () => (await own.get('nr:back').catch(() => null)) === how)
    assert.equal(JSON.parse(await own.get(row(4).key)).name, row(4).name)
    await eventually('subscribed again', async () => (await own.publish('nr:after', how)) === 1)
    await eventually('the message', () => heard.includes(how))
  }
})
