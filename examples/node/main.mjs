// Reads and writes rows through a sidecar with ioredis, as any application on Node.js would.
import { Redis } from 'ioredis'

const [host, port] = (process.env.RINGSIDE ?? '127.0.0.1:16001').split(':')
const client = new Redis({ host, port: Number(port) }) // nothing else: the sidecar is one Redis server

// repeat tries again, for a few seconds at most, what was refused for now: nothing was written then.
const repeat = async command => {
  for (let wait = 20; ; wait *= 2) {
    try {
      return await command()
    } catch (error) {
      if (wait > 2000 || !/^(TRYAGAIN|OVERLOADED) /.test(error.message)) throw error
      await new Promise(resolve => setTimeout(resolve, wait))
    }
  }
}

try {
  const user = JSON.parse(await repeat(() => client.get('user:1002')))
  console.log(`user:1002 is ${user.name}, id ${user.id}`)

  // An upsert of the columns given; the others stay. When it returns, no sidecar reads the older row any more.
  await repeat(() => client.set('user:1002', JSON.stringify({ name: 'Grace', visits: 41 })))
  // Counted up on the shard. Not repeated blindly: after some errors nobody knows whether it was done.
  const visits = await client.hincrby('user:1002', 'visits', 1)
  console.log(`now she is ${await client.hget('user:1002', 'name')}, with ${visits} visits`)

  // Plain keys go to the cache servers, with their lives.
  await client.set('session:def', '1002', 'EX', 60)
  const [session, missing] = await client.mget('session:def', 'user:999999999')
  console.log(`MGET: session ${session}, and ${missing} for a row that does not exist`)

  // What is wrong with a request, the error says; repeating it would not help.
  await client.set('user:1002', '{"shoe_size":38}').catch(error => console.log(`an error: ${error.message}`))
} finally {
  await client.quit()
}
