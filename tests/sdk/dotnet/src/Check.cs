using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Azure;
using Azure.Messaging.ServiceBus;

namespace Peeklock.Sdk
{
    /// <summary>A scenario fails by throwing this.</summary>
    sealed class Failed : Exception
    {
        public Failed(string text) : base(text) { }
    }

    static class Check
    {
        public static void That(bool holds, string what)
        {
            if (!holds)
            {
                throw new Failed(what);
            }
        }

        public static void Equal<T>(T found, T expected, string what)
        {
            That(EqualityComparer<T>.Default.Equals(found, expected), $"{what}: found `{found}`, expected `{expected}`");
        }

        public static void Same<T>(IEnumerable<T> found, IEnumerable<T> expected, string what)
        {
            Equal(string.Join(", ", found.Select(one => $"{one}")), string.Join(", ", expected.Select(one => $"{one}")), what);
        }

        /// <summary>Asserts that the call fails with this reason.</summary>
        public static async Task<ServiceBusException> Refused(ServiceBusFailureReason reason, Func<Task> call, string what)
        {
            var error = await Thrown<ServiceBusException>(call, what);
            Equal(error.Reason, reason, $"{what}: reason of: {error.Message}");
            return error;
        }

        /// <summary>Asserts that the administration call fails with this status.</summary>
        public static async Task Status(int status, Func<Task> call, string what)
        {
            var error = await Thrown<Exception>(call, what);
            var request = error as RequestFailedException ?? error.InnerException as RequestFailedException;
            That(request != null, $"{what}: {error}");
            Equal(request.Status, status, what);
        }

        public static async Task<T> Thrown<T>(Func<Task> call, string what) where T : Exception
        {
            try
            {
                await call();
            }
            catch (T error)
            {
                return error;
            }
            throw new Failed($"{what}: was not refused");
        }
    }
}
